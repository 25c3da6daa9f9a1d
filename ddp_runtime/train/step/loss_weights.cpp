// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/loss_weights.h"

#include <numeric>

#include "base/errors.h"

namespace ddp::train {

LossWeights::LossWeights(comm::Group& group, const Objective& objective)
    : channel_(group.channel("weights of losses")), objective_(objective) {}

void LossWeights::begin_step(const std::vector<data::Batch>& micro_batches) {
  weights_.clear();
  for (const auto& batch : micro_batches) weights_.push_back(weight_of(objective_, batch));
  equal_parts_ = static_cast<double>(channel_.size()) * static_cast<double>(weights_.size());
  sum_ = std::make_shared<double>(std::accumulate(weights_.begin(), weights_.end(), 0.0));
  sent_ =
      channel_.all_reduce(comm::buffer_of(*sum_), comm::ReduceOp::sum, "weights of losses", sum_);
}

torch::Tensor LossWeights::weighted(const torch::Tensor& loss, std::size_t micro_batch) {
  sent_.wait();
  if (*sum_ == 0) {
    throw RuntimeError(
        "the weights of all batches of a step are 0, so its loss is the mean of nothing; check the "
        "data, or the function that weighs batches");
  }
  const double weight = weights_.at(micro_batch);
  const auto finite = weight > 0 ? loss : loss.nan_to_num(0, 0, 0);
  return finite * (weight * equal_parts_ / *sum_);
}

}  // namespace ddp::train
