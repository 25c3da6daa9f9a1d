// SPDX-License-Identifier: Apache-2.0
// Cuts a torch::nn::Sequential into the stages of a pipeline.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "ddp_runtime/pipeline/balance.h"
#include "ddp_runtime/pipeline/stage.h"

namespace ddp::pipeline {

// The modules of `model` follow each other in the stages, as many in each as `balance` says. The
// modules of a stage keep their names in `model`: "2.weight". Throws UsageError if the balance does
// not fit.
std::vector<Stage> cut(const torch::nn::Sequential& model, const Balance& balance);
// The balance for parameters: see balanced(). Modules without any cost nothing.
std::vector<Stage> cut(const torch::nn::Sequential& model, int stages);

}  // namespace ddp::pipeline
