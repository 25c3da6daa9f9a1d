// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/torch.h>

#include <vector>

namespace ddp::train {

// Scales the gradients of `parameters` so that their common 2-norm is at most `max_norm`. Undefined
// gradients are left out. The result is that of torch::nn::utils::clip_grad_norm_, which waits for
// the device to return the norm; this function does not.
void clip_gradients(const std::vector<torch::Tensor>& parameters, double max_norm);

}  // namespace ddp::train
