// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/amp/grad_scaler.h"

#include <cmath>

namespace ddp::amp {

std::vector<torch::Tensor> gradients_of(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> gradients;
  for (const auto& parameter : parameters) {
    if (parameter.grad().defined()) gradients.push_back(parameter.grad());
  }
  return gradients;
}

bool unscale_gradients(const std::vector<torch::Tensor>& parameters, float scale) {
  return unscale_each(gradients_of(parameters), scale);
}

bool unscale_each(const std::vector<torch::Tensor>& gradients, float scale) {
  const torch::NoGradGuard no_grad;
  bool finite = true;
  for (const auto& gradient : gradients) {
    if (scale != 1) gradient.mul_(1.0 / static_cast<double>(scale));
    finite = finite && gradient.isfinite().all().item<bool>();
  }
  return finite;
}

void GradScaler::update(bool finite) {
  auto& [scale, since_change] = state_;
  if (!finite) {
    scale *= options_.backoff_factor;
    since_change = 0;
    return;
  }
  if (++since_change < options_.growth_interval) return;
  since_change = 0;
  const float larger = scale * options_.growth_factor;
  if (std::isfinite(larger)) scale = larger;
}

}  // namespace ddp::amp
