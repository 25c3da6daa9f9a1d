// SPDX-License-Identifier: Apache-2.0
// The element types a collective can reduce, independent of any tensor library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp::comm {

enum class ElementType : std::uint8_t { u8, i8, i16, i32, i64, f16, bf16, f32, f64 };

enum class ReduceOp : std::uint8_t { sum, min, max };

constexpr std::size_t size_of(ElementType type) noexcept {
  switch (type) {
    case ElementType::u8:
    case ElementType::i8:
      return 1;
    case ElementType::i16:
    case ElementType::f16:
    case ElementType::bf16:
      return 2;
    case ElementType::i32:
    case ElementType::f32:
      return 4;
    case ElementType::i64:
    case ElementType::f64:
      return 8;
  }
  return 0;
}

constexpr std::string_view to_string(ElementType type) noexcept {
  switch (type) {
    case ElementType::u8:
      return "uint8";
    case ElementType::i8:
      return "int8";
    case ElementType::i16:
      return "int16";
    case ElementType::i32:
      return "int32";
    case ElementType::i64:
      return "int64";
    case ElementType::f16:
      return "float16";
    case ElementType::bf16:
      return "bfloat16";
    case ElementType::f32:
      return "float32";
    case ElementType::f64:
      return "float64";
  }
  return "?";
}

constexpr std::string_view to_string(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::min:
      return "minimum";
    case ReduceOp::max:
      return "maximum";
  }
  return "?";
}

}  // namespace ddp::comm
