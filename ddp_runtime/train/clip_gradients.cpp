// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/clip_gradients.h"

#include "ddp_runtime/torch_compat.h"

namespace ddp::train {

void clip_gradients(const std::vector<torch::Tensor>& parameters, double max_norm) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  if (gradients.empty()) return;
  const auto norms = at::_foreach_norm(gradients, 2);
  const auto norm = norms.size() == 1 ? norms.front() : torch::stack(norms).norm();
  // A norm that is not finite makes all gradients NaN, as in clip_grad_norm_.
  const auto factor = (max_norm / (norm + 1e-6)).clamp_max(1);
  torch_compat::multiply_each(gradients, factor);
}

}  // namespace ddp::train
