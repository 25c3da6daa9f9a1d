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

// In nats per target, in float32 whatever the scores are: scores [..., classes], targets [...].
torch::Tensor mean_cross_entropy(const torch::Tensor& scores, const torch::Tensor& targets);

// Collective: every rank evaluates its share of the first `samples` of `data`, all get the result
// over all of those.
Evaluation evaluate(comm::Group& group, torch::nn::Module& module, const Forward& forward,
                    const data::Dataset& data, std::int64_t samples, std::int64_t batch,
                    amp::Precision precision);

}  // namespace ddp::train
