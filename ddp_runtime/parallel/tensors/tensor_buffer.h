// SPDX-License-Identifier: Apache-2.0
// Connects tensors to the communication library, which does not depend on torch.
#pragma once

#include <torch/torch.h>

#include "ddp_runtime/comm/group/buffer.h"

namespace ddp {

// Whether the collectives support this element type.
bool can_be_communicated(torch::ScalarType type);

// The memory of a contiguous tensor. For a tensor on a device, a collective begins after the work
// that is on this thread's current stream of that device now. Throws RuntimeError for an element
// type that the collectives do not support.
comm::Buffer buffer_of(const torch::Tensor& tensor);

// The memory of a contiguous tensor of complex numbers, whose two parts are elements of their own.
comm::Buffer parts_of_complex(const torch::Tensor& tensor);

// The same memory as bytes, for data of any element type that is only moved.
comm::Buffer bytes_of(const torch::Tensor& tensor);

}  // namespace ddp
