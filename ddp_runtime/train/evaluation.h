// SPDX-License-Identifier: Apache-2.0
// Evaluates a model on samples that it was not trained on.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/data/dataset.h"
#include "ddp_runtime/train/evaluation_result.h"

namespace ddp::train {

// Maps inputs [n, ...] to scores [n, classes], or [n, context, classes] for text.
using Forward = std::function<torch::Tensor(const torch::Tensor& inputs)>;

// Maps the outputs and targets of a batch to one number, the mean over the batch.
using LossFunction =
    std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)>;

// The function to minimize. The default loss is mean_cross_entropy().
struct Objective {
  Forward forward;
  LossFunction loss = {};
};

// In nats per target, computed in float32 for any score type: scores [..., classes], targets [...].
torch::Tensor mean_cross_entropy(const torch::Tensor& scores, const torch::Tensor& targets);

// Collective: every rank evaluates its share of the first `samples` of `data`, and all ranks get
// the result over all shares. To evaluate the model that a checkpoint holds, buffers (the
// statistics of BatchNorm) take rank 0's values first. The module is in evaluation mode during the
// call; every submodule returns to its previous mode, even if the call throws. Throws UsageError if
// there are no targets.
Evaluation evaluate(comm::Group& group, torch::nn::Module& module, const Forward& forward,
                    const data::Dataset& data, std::int64_t samples, std::int64_t batch,
                    amp::Precision precision, const LossFunction& loss = {});

}  // namespace ddp::train
