// The bridge between tensors and the communication library, which knows no tensors.
#pragma once

#include <torch/torch.h>

#include "ddp_runtime/comm/buffer.h"

namespace ddp {

// The memory of a contiguous host tensor. Throws RuntimeError for an element type or a device that
// the collectives cannot take.
comm::Buffer buffer_of(const torch::Tensor& tensor);

// The same memory as bytes: of any element type, for what only moves.
comm::Buffer bytes_of(const torch::Tensor& tensor);

}  // namespace ddp
