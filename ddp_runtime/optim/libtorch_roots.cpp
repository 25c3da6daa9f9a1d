// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/libtorch_roots.h"

#include <torch/torch.h>

namespace ddp::optim {

void libtorch_roots(const float* values, float* roots, std::size_t count) {
  const torch::NoGradGuard no_grad;  // per thread
  const auto length = static_cast<std::int64_t>(count);
  const auto options = torch::TensorOptions(torch::kFloat32).device(torch::kCPU);
  // Tensors have no constant data; sqrt_out() only reads this one.
  const auto input = at::from_blob(const_cast<float*>(values), {length}, options);
  auto output = at::from_blob(roots, {length}, options);
  at::sqrt_out(output, input);
}

}  // namespace ddp::optim
