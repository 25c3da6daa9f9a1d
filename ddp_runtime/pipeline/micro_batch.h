// SPDX-License-Identifier: Apache-2.0
// The data of a step, and its loss.
#pragma once

#include <torch/torch.h>

#include <functional>

namespace ddp::pipeline {

// Only the rank with the first stage reads `input`, and only that with the last one `target` and
// `weight`; the others may leave them undefined.
struct MicroBatch {
  torch::Tensor input = {};
  torch::Tensor target = {};
  double weight = 1;  // factor of this micro-batch's loss in the mean
};

// The loss of one micro-batch: a number, the mean over its samples.
using Loss = std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)>;

}  // namespace ddp::pipeline
