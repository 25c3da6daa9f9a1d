// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/abilities.h"

#include "ddp_runtime/optim/captured_step.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/optim/partial_step.h"
#include "ddp_runtime/optim/skipped_steps.h"

namespace ddp::optim {

Abilities abilities_of(torch::optim::Optimizer& optimizer) {
  return {.skips = dynamic_cast<SkipsSteps*>(&optimizer),
          .parts = dynamic_cast<StepsInParts*>(&optimizer),
          .graphs = dynamic_cast<StepsInGraphs*>(&optimizer),
          .keeper = dynamic_cast<KeepsMasters*>(&optimizer),
          .divides = dynamic_cast<const DividesParameters*>(&optimizer)};
}

torch::optim::Optimizer& updater_of(torch::optim::Optimizer& optimizer) {
  const auto* const divides = abilities_of(optimizer).divides;
  return divides == nullptr ? optimizer : divides->shard();
}

}  // namespace ddp::optim
