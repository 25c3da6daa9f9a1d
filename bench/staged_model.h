// SPDX-License-Identifier: Apache-2.0
// The models mlp and gpt in stages that take about the same time.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "ddp_runtime/models/model.h"
#include "ddp_runtime/pipeline/stage.h"
#include "ddp_runtime/pipeline/tied_weights.h"

namespace ddp::bench {

// Stage `number` of `stages`. Throws UsageError for another model, or if its layers cannot be
// divided among the stages.
pipeline::Stage make_bench_stage(const models::ModelOptions& model, int number, int stages);

// Weights that stages have in common.
std::vector<pipeline::TiedWeight> tied_weights_of(const models::ModelOptions& model, int stages);

// Of what a stage passes on, for `samples`.
std::vector<std::int64_t> activation_shape(const models::ModelOptions& model, std::int64_t samples);

}  // namespace ddp::bench
