// SPDX-License-Identifier: Apache-2.0
// Element types and reductions as NCCL's numbers, which are part of its binary interface.
#pragma once

#include "ddp_runtime/comm/group/element_type.h"

namespace ddp::comm {

// NCCL has no 16-bit integers.
constexpr int nccl_type(ElementType type) noexcept {
  switch (type) {
    case ElementType::i8:
      return 0;
    case ElementType::i16:
      break;
    case ElementType::u8:
      return 1;
    case ElementType::i32:
      return 2;
    case ElementType::i64:
      return 4;
    case ElementType::f16:
      return 6;
    case ElementType::f32:
      return 7;
    case ElementType::f64:
      return 8;
    case ElementType::bf16:
      return 9;
  }
  return -1;
}

constexpr int nccl_op(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return 0;
    case ReduceOp::max:
      return 2;
    case ReduceOp::min:
      return 3;
  }
  return -1;
}

}  // namespace ddp::comm
