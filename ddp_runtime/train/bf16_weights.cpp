// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/bf16_weights.h"

#include "ddp_runtime/train/optimizer.h"

namespace ddp::train {

void use_bf16_weights(const torch::nn::Module& module) {
  for (auto& weight : decay_groups(module).decayed) {
    if (weight.scalar_type() != torch::kFloat32) continue;
    weight.set_data(weight.detach().to(torch::kBFloat16));
  }
}

}  // namespace ddp::train
