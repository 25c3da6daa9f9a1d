// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/model/weight_average.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>

#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/train/state/divided_parameters.h"

namespace ddp::train {

WeightAverage::WeightAverage(const torch::nn::Module& module, double decay,
                             DistributedDataParallel* replica)
    : decay_(decay) {
  const DividedParameters divided(std::span(&replica, replica == nullptr ? 0 : 1));
  if (divided.any()) shards_ = &dynamic_cast<ShardedDataParallel&>(*replica).shards();
  for (const auto& [name, tensor] : named_parameters(module)) {
    if (!tensor.requires_grad()) continue;
    auto weights = divided.has(tensor) ? divided.array_of(name, tensor)
                                       : StateArray{name, tensor.detach(), std::nullopt};
    averages_.push_back(weights.tensor.to(torch::kFloat32, false, /*copy=*/true));
    weights_.push_back(std::move(weights));
  }
}

void WeightAverage::restart() {
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < weights_.size(); ++i) averages_[i].copy_(weights_[i].tensor);
}

void WeightAverage::save_in(UserState& state) const {
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    const auto name = "ema/" + weights_[i].name;
    if (weights_[i].division) {
      state.add_rows(name, {name, averages_[i], weights_[i].division});
    } else {
      state.add(name, averages_[i]);
    }
  }
}

void WeightAverage::update(std::int64_t step) {
  const torch::NoGradGuard no_grad;
  constexpr double kSteps = 9;
  const auto t = static_cast<double>(step);
  const double decay = std::min(decay_, t / (t + kSteps));
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> averages;
  for (std::size_t i = 0; i < weights_.size(); ++i) {
    if (averages_[i].numel() == 0) continue;  // without rows
    weights.push_back(weights_[i].tensor);
    averages.push_back(averages_[i]);
  }
  if (averages.empty()) return;
  at::_foreach_mul_(averages, decay);
  at::_foreach_add_(averages, weights, 1 - decay);
}

// Around its writes, as around an update, the ranks wait for those that read what they have in
// common.
WeightAverage::Use::Use(WeightAverage& average) : average_(average) {
  const torch::NoGradGuard no_grad;
  if (average_.shards_ != nullptr) average_.shards_->begin_update();
  // All copies come first: there may be no memory for one of them.
  for (const auto& weight : average_.weights_) weights_.push_back(weight.tensor.clone());
  try {
    for (std::size_t i = 0; i < average_.weights_.size(); ++i) {
      average_.weights_[i].tensor.copy_(average_.averages_[i]);
    }
    if (average_.shards_ != nullptr) average_.shards_->publish();
  } catch (...) {
    put_back_after_error();
    throw;
  }
}

void WeightAverage::Use::put_back() {
  const torch::NoGradGuard no_grad;
  const auto weights = std::exchange(weights_, {});
  for (std::size_t i = 0; i < weights.size(); ++i) average_.weights_[i].tensor.copy_(weights[i]);
}

void WeightAverage::Use::end() {
  if (average_.shards_ != nullptr) average_.shards_->begin_update();
  put_back();
  if (average_.shards_ != nullptr) average_.shards_->publish();
}

// The error that has led here tells more than one of the device that is found now.
void WeightAverage::Use::put_back_after_error() noexcept {
  try {
    put_back();
  } catch (const std::exception&) {
  }
}

WeightAverage::Use::~Use() {
  put_back_after_error();
}

}  // namespace ddp::train
