// SPDX-License-Identifier: Apache-2.0
// The step of the outer optimizer of DiLoCo (Douillard et al., "DiLoCo: Distributed Low-
// Communication Training of Language Models", 2023), on flat memory.
#pragma once

#include <torch/torch.h>

#include "ddp_runtime/parallel/local/local_options.h"

namespace ddp {

// SGD with Nesterov momentum, as PyTorch's, whose gradient points from the mean of the ranks'
// parameters back to where they began:
//
//   gradient = start - mean
//   velocity = momentum * velocity + gradient
//   start    = start - learning_rate * (gradient + momentum * velocity)
//
// All tensors have the same shape. `mean` has the new values of `start` afterwards, too. A velocity
// that is undefined is zero and stays undefined, for a momentum of 0.
void outer_step(const OuterOptions& options, const torch::Tensor& start,
                const torch::Tensor& velocity, const torch::Tensor& mean);

}  // namespace ddp
