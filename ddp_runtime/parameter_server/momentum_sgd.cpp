// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parameter_server/momentum_sgd.h"

#include <algorithm>
#include <utility>

namespace ddp::parameter_server {

MomentumSgd::MomentumSgd(std::vector<float> values, std::vector<float> velocity, double momentum,
                         double weight_decay, std::size_t decayed)
    : values_(std::move(values)),
      velocity_(std::move(velocity)),
      momentum_(static_cast<float>(momentum)),
      weight_decay_(static_cast<float>(weight_decay)),
      decayed_(std::min(decayed, values_.size())) {}

void MomentumSgd::tick(double learning_rate) {
  const auto rate = static_cast<float>(learning_rate);
  for (auto& v : velocity_) v *= momentum_;
  for (std::size_t i = 0; i < decayed_; ++i) velocity_[i] += weight_decay_ * values_[i];
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i] -= rate * velocity_[i];
}

void MomentumSgd::add(std::span<const float> gradient, double learning_rate) {
  const auto rate = static_cast<float>(learning_rate);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    velocity_[i] += gradient[i];
    values_[i] -= rate * gradient[i];
  }
}

}  // namespace ddp::parameter_server
