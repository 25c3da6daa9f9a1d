// SPDX-License-Identifier: Apache-2.0
// A data set that fits in memory: two tensors.
#pragma once

#include "ddp_runtime/data/dataset.h"

namespace ddp::data {

class TensorDataset final : public Dataset {
 public:
  // inputs: float32 [n, ...], or int64 [n, ...] for token ids. targets: integers of any width, [n]
  // or one per position of a sample [n, ...], with values in [0, classes), or -100 for positions
  // that the loss ignores. With 0 classes, for a custom loss, targets are [n, ...] of any type. n
  // is at least 1. Throws UsageError.
  TensorDataset(const torch::Tensor& inputs, const torch::Tensor& targets, std::int64_t classes);

  std::int64_t size() const override { return inputs_.size(0); }
  SampleShape shape() const override;
  Batch get(std::span<const std::int64_t> indices) const override;

 private:
  torch::Tensor inputs_;
  torch::Tensor targets_;
  std::int64_t classes_;
};

// Every tenth sample (9, 19, 29, ...) for evaluation, the others for training.
struct Split {
  std::shared_ptr<TensorDataset> train;
  std::shared_ptr<TensorDataset> evaluation;
};
Split hold_out_a_tenth(const torch::Tensor& inputs, const torch::Tensor& targets,
                       std::int64_t classes);

}  // namespace ddp::data
