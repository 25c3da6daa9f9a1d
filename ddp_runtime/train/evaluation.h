// How good a model is on samples it was not trained with.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/data/dataset.h"
#include "ddp_runtime/train/evaluation_result.h"

namespace ddp::train {

// inputs [n, ...] to scores [n, classes], or [n, context, classes] of a text.
using Forward = std::function<torch::Tensor(const torch::Tensor& inputs)>;

// Outputs and targets of a batch to one number, the mean over the batch.
using LossFunction =
    std::function<torch::Tensor(const torch::Tensor& outputs, const torch::Tensor& targets)>;

// What is minimized. Without a loss it is mean_cross_entropy().
struct Objective {
  Forward forward;
  LossFunction loss = {};
};

// In nats per target, in float32 whatever the scores are: scores [..., classes], targets [...].
torch::Tensor mean_cross_entropy(const torch::Tensor& scores, const torch::Tensor& targets);

// Collective: every rank evaluates its share of the first `samples` of `data`, all get the result
// over all of those. The model that is evaluated is the one that a checkpoint holds: buffers (the
// statistics of BatchNorm) take rank 0's values first. The module is in evaluation mode meanwhile;
// afterwards every module in it is in the mode it was in before, whether this returns or throws.
// Throws UsageError if there are no targets.
Evaluation evaluate(comm::Group& group, torch::nn::Module& module, const Forward& forward,
                    const data::Dataset& data, std::int64_t samples, std::int64_t batch,
                    amp::Precision precision, const LossFunction& loss = {});

}  // namespace ddp::train
