// SPDX-License-Identifier: Apache-2.0
// Element-wise reduction of host memory.
#pragma once

#include <cstddef>
#include <span>

#include "ddp_runtime/comm/group/buffer.h"

namespace ddp::comm {

// into[i] = op(into[i], other[i]). `other` has as many bytes as `into` and the same type.
// Half-precision sums are computed in float32 and rounded to nearest even.
void reduce_into(Buffer into, std::span<const std::byte> other, ReduceOp op);

}  // namespace ddp::comm
