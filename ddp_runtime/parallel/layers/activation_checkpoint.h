// SPDX-License-Identifier: Apache-2.0
// Activation checkpointing: trades computation for memory.
//
// The function's activations are not kept during forward; backward runs the function again. The
// gradients are bitwise the same. Unlike with a nested backward(), each parameter gets its gradient
// once, so the reducer does not need a static graph.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace ddp {

using CheckpointedFunction = std::function<torch::Tensor(const std::vector<torch::Tensor>&)>;

// Returns function(inputs) without keeping intermediate results. `parameters` must hold all
// parameters that the function uses and that require gradients, such as module->parameters().
// Backward calls the function again with the states that the random generators of the CPU and of
// the tensors' devices have now, so that dropout repeats itself, and with the autocast state of
// this call. The function must not have other side effects (batch normalization would update its
// running means twice).
torch::Tensor checkpointed(const CheckpointedFunction& function,
                           const std::vector<torch::Tensor>& inputs,
                           const std::vector<torch::Tensor>& parameters);

}  // namespace ddp
