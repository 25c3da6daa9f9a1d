// SPDX-License-Identifier: Apache-2.0
// Where a model is, and so where it is trained.
#pragma once

#include <torch/torch.h>

namespace ddp {

// The device of the module's first parameter; the CPU if it has none.
inline torch::Device device_of(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters.front().device();
}

}  // namespace ddp
