// SPDX-License-Identifier: Apache-2.0
// Optimizers on the fake device, and flags that skip their steps.
#pragma once

#include <torch/torch.h>

#include "ddp_runtime/optim/optimizers.h"
#include "tests/unit/fake_device/fake_device.h"

namespace ddp::fake_device {

// Our optimizers fuse on CUDA only. These do so on the fake device.
template <class Base>
class Fusing : public Base {
 public:
  using Base::Base;

 protected:
  bool fuses(torch::DeviceType type) const override { return type == kType; }
};

inline torch::Tensor flag_of(bool skipped) {
  return torch::full({}, skipped ? 1.0F : 0.0F,
                     torch::TensorOptions(torch::kFloat32).device(device()));
}

inline optim::SkipsSteps& skipping(torch::optim::Optimizer& optimizer) {
  return dynamic_cast<optim::SkipsSteps&>(optimizer);
}

}  // namespace ddp::fake_device
