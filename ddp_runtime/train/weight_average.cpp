// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/weight_average.h"

#include <algorithm>
#include <cstddef>

namespace ddp::train {

WeightAverage::WeightAverage(const torch::nn::Module& module, double decay) : decay_(decay) {
  for (auto& parameter : named_parameters(module)) {
    if (!parameter.tensor.requires_grad()) continue;
    averages_.push_back(parameter.tensor.detach().to(torch::kFloat32, false, /*copy=*/true));
    parameters_.push_back(std::move(parameter));
  }
}

void WeightAverage::restart() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < parameters_.size(); ++i) averages_[i].copy_(parameters_[i].tensor);
}

void WeightAverage::save_in(UserState& state) const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    state.add("ema/" + parameters_[i].name, averages_[i]);
  }
}

void WeightAverage::update(std::int64_t step) {
  if (averages_.empty()) return;
  const torch::NoGradGuard no_grad;
  constexpr double kSteps = 9;
  const auto t = static_cast<double>(step);
  const double decay = std::min(decay_, t / (t + kSteps));
  std::vector<torch::Tensor> weights;
  weights.reserve(parameters_.size());
  for (const auto& parameter : parameters_) weights.push_back(parameter.tensor);
  at::_foreach_mul_(averages_, decay);
  at::_foreach_add_(averages_, weights, 1 - decay);
}

WeightAverage::Use::Use(WeightAverage& average) : average_(average) {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < average_.parameters_.size(); ++i) {
    auto& weight = average_.parameters_[i].tensor;
    weights_.push_back(weight.detach().clone());
    weight.copy_(average_.averages_[i]);
  }
}

WeightAverage::Use::~Use() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    average_.parameters_[i].tensor.copy_(weights_[i]);
  }
}

}  // namespace ddp::train
