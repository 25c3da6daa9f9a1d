// SPDX-License-Identifier: Apache-2.0
// The state of the optimizers of a model that is cut into stages, as if it were one: each rank has
// the state of its own parameters.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/train/state/stage_residence.h"
#include "ddp_runtime/train/state/state_array.h"
#include "ddp_runtime/train/state/state_fields.h"

namespace ddp::train {

class StagedState {
 public:
  // All arguments must outlive this object. `group`: all ranks.
  StagedState(comm::Group& group, torch::optim::Optimizer& optimizer,
              const StageResidence& residence);

  // Collective. "<parameter>/<field>" for all that any rank has, the same on all ranks except for
  // the rows, which share the optimizer's memory. The steps are whole.
  std::vector<StateArray> arrays(const std::vector<NamedTensor>& parameters) const;

  // As those of DividedState.
  StateArray allocate(const NamedTensor& parameter, const std::string& field);
  void set_step(const torch::Tensor& parameter, std::int64_t step);

 private:
  comm::Group& group_;
  torch::optim::Optimizer& optimizer_;
  const StageResidence& residence_;
  const StateFields* fields_;
};

}  // namespace ddp::train
