// SPDX-License-Identifier: Apache-2.0
// What an optimizer can do apart from step().
#pragma once

#include <torch/torch.h>

namespace ddp::optim {

class KeepsMasters;
class SkipsSteps;
class StepsInGraphs;
class StepsInParts;

// An optimizer that divides parameters among ranks and lets another optimizer update this rank's
// parts of them.
class DividesParameters {
 public:
  virtual ~DividesParameters() = default;
  virtual torch::optim::Optimizer& shard() const noexcept = 0;
};

// Of the optimizer itself; null: it cannot.
struct Abilities {
  SkipsSteps* skips = nullptr;
  StepsInParts* parts = nullptr;
  StepsInGraphs* graphs = nullptr;
  KeepsMasters* keeper = nullptr;
  const DividesParameters* divides = nullptr;
};
Abilities abilities_of(torch::optim::Optimizer& optimizer);

// What updates this rank's parameters, or its parts of them: shard(), or the optimizer itself.
torch::optim::Optimizer& updater_of(torch::optim::Optimizer& optimizer);

}  // namespace ddp::optim
