// SPDX-License-Identifier: Apache-2.0
// Loss scaling whose state is on a device, so that no step waits for it; see Note [Loss scale]. The
// scales are those of GradScaler.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "ddp_runtime/amp/grad_scaler.h"

namespace ddp::amp {

// Sets `found`, a float32 scalar on the device, to 1 if a gradient is not finite, and otherwise
// leaves it as it is. Multiplies the gradients by `factor`, a float32 scalar on the device.
void check_and_multiply_each(const std::vector<torch::Tensor>& gradients,
                             const torch::Tensor& factor, torch::Tensor& found);

class DeviceGradScaler {
 public:
  // Continues from the state of `scaler`.
  DeviceGradScaler(const GradScaler& scaler, torch::Device device);

  torch::Tensor scale_loss(const torch::Tensor& loss) const { return loss * scale_; }
  // Call after averaging the gradients over the ranks, before clipping. Divides them by the scale.
  // `found` as above.
  void unscale_each(const std::vector<torch::Tensor>& gradients, torch::Tensor& found) const;
  void unscale(const std::vector<torch::Tensor>& parameters, torch::Tensor& found) const {
    unscale_each(gradients_of(parameters), found);
  }
  // Call after each step. `found`: 1 if the update is skipped.
  void update(const torch::Tensor& found);

  // Float32 and int32 scalars, which update() overwrites.
  const torch::Tensor& scale() const noexcept { return scale_; }
  const torch::Tensor& updates_since_change() const noexcept { return updates_since_change_; }

 private:
  GradScalerOptions options_;
  torch::Tensor scale_;
  torch::Tensor updates_since_change_;
};

}  // namespace ddp::amp
