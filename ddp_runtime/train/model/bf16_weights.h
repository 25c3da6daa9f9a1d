// SPDX-License-Identifier: Apache-2.0
// A model whose large weights are bfloat16. That saves memory, half of the traffic of their
// gradients, and the conversions that autocast makes in every forward pass.
#pragma once

#include <torch/torch.h>

namespace ddp::train {

// Converts the float32 weights of linear layers and convolutions to bfloat16. Everything else stays
// float32: embeddings (also if a linear layer shares theirs), biases, norms, transposed
// convolutions, parameters of your own modules, frozen ones, and all buffers. Forward must run
// under an AutocastGuard for bf16, which rounds these weights anyway: its results stay the same.
// The initial values lose what bfloat16 cannot hold.
//
// Gradients of several micro-batches are added in bfloat16, which loses about 0.2 % with each: use
// it with few of them.
//
// Call before anything holds the parameters' memory, such as a replica; of a model that is divided
// while it is built, for each part before ShardedBuild::add(). Throws UsageError for float32
// weights that were divided without it. The optimizer should keep masters (optim/master_weights.h);
// otherwise small updates are lost.
void use_bf16_weights(const torch::nn::Module& module);

}  // namespace ddp::train
