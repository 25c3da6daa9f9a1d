// SPDX-License-Identifier: Apache-2.0
// The memory that a training takes on a rank: of its device if the model is on one, else of the
// host.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/memory/device_memory.h"
#include "ddp_runtime/train/memory/step_memory.h"

namespace ddp::train {

class RankMemory {
 public:
  // Before anything but the model is made for a training. `group` must outlive this object.
  RankMemory(comm::Group& group, const torch::nn::Module& model);

  // Before the first step.
  void begin();
  // Collective: the peak since begin() of the rank with the most, in bytes; nullopt if unknown.
  std::optional<std::int64_t> peak() const;

 private:
  comm::Group& group_;
  StepMemory host_;
  std::optional<DeviceMemory> device_;
};

}  // namespace ddp::train
