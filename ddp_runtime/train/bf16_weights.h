// SPDX-License-Identifier: Apache-2.0
// A model whose large weights are bfloat16. That saves memory, half of the traffic of their
// gradients, and the conversions that autocast makes in every forward pass.
#pragma once

#include <torch/torch.h>

namespace ddp::train {

// Converts the float32 weights that multiply inputs to bfloat16: those to which weight decay
// applies, see decay_groups(). Embeddings, biases, the parameters of norms, frozen parameters and
// all buffers stay float32. Forward must run under an AutocastGuard for bf16, which rounds these
// weights anyway: its results stay the same. The initial values lose what bfloat16 cannot hold.
//
// Call before anything holds the parameters' memory, such as a replica. The optimizer should keep
// masters (optim/master_weights.h); otherwise small updates are lost.
void use_bf16_weights(const torch::nn::Module& module);

}  // namespace ddp::train
