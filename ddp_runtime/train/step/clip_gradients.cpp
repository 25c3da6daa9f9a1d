// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/clip_gradients.h"

#include "ddp_runtime/torch_compat.h"

namespace ddp::train {

namespace {

// Norms of short types are computed in float32: in bfloat16 they would have two digits.
std::vector<torch::Tensor> norms_of(const std::vector<torch::Tensor>& gradients) {
  std::vector<torch::Tensor> full;
  std::vector<torch::Tensor> brief;
  for (const auto& gradient : gradients) {
    (gradient.element_size() < 4 ? brief : full).push_back(gradient);
  }
  std::vector<torch::Tensor> norms;
  if (!full.empty()) norms = at::_foreach_norm(full, 2);
  if (brief.empty()) return norms;
  const auto others = torch_compat::norm_of_each_in_float32(brief);
  norms.insert(norms.end(), others.begin(), others.end());
  return norms;
}

}  // namespace

void clip_gradients(const std::vector<torch::Tensor>& parameters, double max_norm) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  if (gradients.empty()) return;
  const auto norms = norms_of(gradients);
  const auto norm = norms.size() == 1 ? norms.front() : torch::stack(norms).norm();
  // A norm that is not finite makes all gradients NaN, as in clip_grad_norm_.
  const auto factor = (max_norm / (norm + 1e-6)).clamp_max(1);
  torch_compat::multiply_each(gradients, factor);
}

}  // namespace ddp::train
