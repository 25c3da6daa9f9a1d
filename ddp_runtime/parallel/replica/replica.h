// SPDX-License-Identifier: Apache-2.0
// Makes all ranks start from the same model, and throws if their models differ.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"

namespace ddp {

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// Parameters in registration order; shared (tied) ones are listed once, under their first name.
std::vector<NamedTensor> named_parameters(const torch::nn::Module& module);
std::vector<NamedTensor> named_buffers(const torch::nn::Module& module);

// Not negative. The same on two ranks if names, shapes, types, strides and requires_grad are; if
// they differ, only with a probability of 2^-63.
std::int64_t fingerprint_of(std::span<const NamedTensor> tensors);

// Compares names, shapes, types, strides and requires_grad over all ranks. If they differ, every
// rank throws the same RuntimeError, which names the difference and the rank.
void require_same_model(comm::Group& group, std::span<const NamedTensor> tensors);

// Collective, for the same tensors in the same order. Copies rank 0's values to all ranks. Packs
// small tensors together and sends large ones in place, so that it needs only 1 MiB of memory for
// any model.
void broadcast_from_leader(comm::Group& group, std::span<const NamedTensor> tensors);

}  // namespace ddp
