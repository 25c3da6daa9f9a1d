// SPDX-License-Identifier: Apache-2.0
// Evaluates a model on samples that it was not trained on.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/data/dataset.h"
#include "ddp_runtime/train/evaluation_result.h"
#include "ddp_runtime/train/objective.h"

namespace ddp::train {

// Collective: every rank evaluates its share of the first `samples` of `data`, and all ranks get
// the result over all shares. To evaluate the model that a checkpoint holds, buffers (the
// statistics of BatchNorm) take rank 0's values first. The module is in evaluation mode during the
// call; every submodule returns to its previous mode, even if the call throws. Throws UsageError if
// there are no targets, or if a metric is not one number.
Evaluation evaluate(comm::Group& group, torch::nn::Module& module, const Objective& objective,
                    const data::Dataset& data, std::int64_t samples, std::int64_t batch,
                    amp::Precision precision);

}  // namespace ddp::train
