// SPDX-License-Identifier: Apache-2.0
// Measures how good a model is on samples it was not trained with.
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

// The function to minimize. Without a loss it is mean_cross_entropy().
struct Objective {
  Forward forward;
  LossFunction loss = {};
};

// In nats per target, computed in float32 for any score type: scores [..., classes], targets [...].
torch::Tensor mean_cross_entropy(const torch::Tensor& scores, const torch::Tensor& targets);

// Collective: every rank evaluates its share of the first `samples` of `data`, and all get the
// result over all of them. The evaluated model is the one that a checkpoint holds: buffers (the
// statistics of BatchNorm) take rank 0's values first. Meanwhile the module is in evaluation mode;
// afterwards every submodule is back in its previous mode, whether this returns or throws. Throws
// UsageError if there are no targets.
Evaluation evaluate(comm::Group& group, torch::nn::Module& module, const Forward& forward,
                    const data::Dataset& data, std::int64_t samples, std::int64_t batch,
                    amp::Precision precision, const LossFunction& loss = {});

}  // namespace ddp::train
