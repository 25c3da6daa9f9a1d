// Activation checkpointing: trades computing for memory.
//
// The function's activations are not kept during forward; backward runs the function again. The
// gradients are the same bitwise. Unlike a nested backward(), each parameter gets its gradient
// once, so the reducer needs no static graph.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

namespace ddp {

using CheckpointedFunction = std::function<torch::Tensor(const std::vector<torch::Tensor>&)>;

// function(inputs), without keeping what is in between. `parameters` are all parameters that the
// function uses and that want gradients: module->parameters(). The function is called again in
// backward, with the random generator's state, so that dropout repeats itself, and with the
// autocast state of this call; it must have no other side effects (batch normalization's running
// means would move twice).
torch::Tensor checkpointed(const CheckpointedFunction& function,
                           const std::vector<torch::Tensor>& inputs,
                           const std::vector<torch::Tensor>& parameters);

}  // namespace ddp
