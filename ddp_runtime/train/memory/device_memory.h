// SPDX-License-Identifier: Apache-2.0
// How much memory of a device a rank's weights, gradients, optimizer and activations have taken at
// once: what libtorch's allocator has given out at its peak, without what it keeps for later, and
// the buffers of the group, which it keeps. What was there before, except the model, is subtracted.
// The memory in which a graph computes counts while it is captured only.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <optional>

#include "ddp_runtime/comm/group/group.h"

namespace ddp::train {

class DeviceMemory {
 public:
  // Before anything but the model is made for a training. `model_bytes`: what the model has of the
  // device already. `group` must outlive this object.
  DeviceMemory(const comm::Group& group, torch::Device device, std::int64_t model_bytes);

  // Before the first step. Restarts libtorch's own measurement of the peak.
  void begin();
  // The largest since begin(), in bytes; nullopt if libtorch does not tell (before 2.11), and
  // before begin().
  std::optional<std::int64_t> peak() const;

 private:
  const comm::Group& group_;
  torch::Device device_;
  std::optional<std::int64_t> before_;
  bool has_begun_ = false;
};

}  // namespace ddp::train
