// SPDX-License-Identifier: Apache-2.0
// Makes all ranks start from the same model, and refuses to start if they cannot.
#pragma once

#include <torch/torch.h>

#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group.h"

namespace ddp {

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// Parameters in registration order; shared (tied) ones are listed once, under their first name.
std::vector<NamedTensor> named_parameters(const torch::nn::Module& module);
std::vector<NamedTensor> named_buffers(const torch::nn::Module& module);

// Compares names, shapes, types, strides and requires_grad over all ranks. On a difference every
// rank throws the same RuntimeError, which says what differs and on which rank.
void require_same_model(comm::Group& group, std::span<const NamedTensor> tensors);

// Collective, for the same tensors in the same order. Copies rank 0's values to all ranks: small
// tensors together, large ones in place, so that it takes 1 MiB of memory whatever the model is.
void broadcast_from_leader(comm::Group& group, std::span<const NamedTensor> tensors);

}  // namespace ddp
