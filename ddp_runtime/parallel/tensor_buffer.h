// SPDX-License-Identifier: Apache-2.0
// Connects tensors to the communication library, which does not depend on torch.
#pragma once

#include <torch/torch.h>

#include "ddp_runtime/comm/buffer.h"

namespace ddp {

// The memory of a contiguous host tensor. Throws RuntimeError for an element type or a device that
// the collectives do not support.
comm::Buffer buffer_of(const torch::Tensor& tensor);

// The same memory as bytes, for data of any element type that is only moved.
comm::Buffer bytes_of(const torch::Tensor& tensor);

}  // namespace ddp
