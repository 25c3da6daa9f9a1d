// SPDX-License-Identifier: Apache-2.0
// What a program computes from a batch: the loss to minimize, and numbers for evaluations.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "ddp_runtime/data/dataset.h"

namespace ddp::train {

// Maps inputs [n, ...] to outputs: scores [n, classes], or [n, context, classes] for text, unless
// there is a loss of the program's own.
using Forward = std::function<torch::Tensor(const torch::Tensor& inputs)>;

// Maps the outputs and targets of a batch to one number, the mean over the batch.
using LossFunction =
    std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)>;

// Maps a batch to its mean loss, for programs whose batches have several tensors, whose model has
// several outputs, or whose loss has several terms.
using BatchLoss = std::function<torch::Tensor(const data::Batch& batch)>;

// How much a batch counts, such as the number of its targets that are not padding: the loss of a
// step is the mean of the micro-batches' losses weighted by this, over all ranks. At least 0.
// Called with the batch in host memory. A BatchLoss of a batch that weighs 0 must have finite
// derivatives: divide by at least 1. With a Forward they are not used.
using BatchWeight = std::function<double(const data::Batch& batch)>;

// A number that evaluations report beside the loss.
struct Metric {
  std::string name;  // in logs and in run.json
  // The mean over the batch, one number. `outputs` is undefined if there is no Forward.
  std::function<torch::Tensor(const torch::Tensor& outputs, const data::Batch& batch)> mean;
};

// Either `batch_loss`, or `forward` and perhaps `loss`.
struct Objective {
  Forward forward = {};
  LossFunction loss = {};  // default: mean_cross_entropy()
  BatchLoss batch_loss = {};
  BatchWeight weight = {};  // default: every batch counts by its number of samples
  std::vector<Metric> metrics = {};

  // Whether the loss is the cross-entropy of class scores, whose accuracy can be told.
  bool classifies() const { return !loss && !batch_loss; }
};

// Throws UsageError unless the parts fit together.
void require_complete(const Objective& objective);

// In nats per target, computed in float32 for any score type: scores [..., classes], targets [...].
torch::Tensor mean_cross_entropy(const torch::Tensor& scores, const torch::Tensor& targets);

// Whether backward() of a loss reaches what is before the outputs. A mean over nothing has
// derivatives that are not numbers.
enum class Derivatives { all, none_of_outputs };

// The mean loss of a batch. Throws UsageError if it is not one number.
torch::Tensor loss_of(const Objective& objective, const data::Batch& batch,
                      Derivatives derivatives = Derivatives::all);

// The weight of a batch. Throws UsageError if it is negative or not finite.
double weight_of(const Objective& objective, const data::Batch& batch);

}  // namespace ddp::train
