// SPDX-License-Identifier: Apache-2.0
// Chooses the parameters that are trained.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string_view>

namespace ddp::train {

// Both change requires_grad of the parameters whose names match "PATTERN,PATTERN,..." (a `*` stands
// for any text; see hdf5_ckpt/convert/name_pattern.h) and return their number. Call them on every
// rank, before the model is wrapped: a DistributedDataParallel refuses a model that was changed, so
// create it and the optimizer again afterwards. Throw UsageError if a pattern matches no parameter;
// freeze() also if no parameter is left to train.
//
// A frozen BatchNorm still updates its running statistics in training mode; call its eval() to keep
// them.
std::int64_t freeze(torch::nn::Module& module, std::string_view patterns);
std::int64_t unfreeze(torch::nn::Module& module, std::string_view patterns);

}  // namespace ddp::train
