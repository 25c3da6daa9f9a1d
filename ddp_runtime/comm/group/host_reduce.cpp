// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/group/host_reduce.h"

#include <algorithm>
#include <cstdint>

#include "ddp_runtime/comm/group/half_precision.h"

namespace ddp::comm {
namespace {

// The compiler vectorizes plain loops over restrict pointers. Memory bandwidth, not arithmetic,
// limits their speed.
template <class T, class Op>
void reduce_elements(T* __restrict into, const T* __restrict other, std::size_t n, Op op) {
  for (std::size_t i = 0; i < n; ++i) into[i] = op(into[i], other[i]);
}

template <class T>
void reduce_typed(T* into, const T* other, std::size_t n, ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return reduce_elements(into, other, n, [](T a, T b) { return static_cast<T>(a + b); });
    case ReduceOp::min:
      return reduce_elements(into, other, n, [](T a, T b) { return std::min(a, b); });
    case ReduceOp::max:
      return reduce_elements(into, other, n, [](T a, T b) { return std::max(a, b); });
  }
}

template <auto ToFloat, auto FromFloat>
void reduce_half(std::uint16_t* into, const std::uint16_t* other, std::size_t n, ReduceOp op) {
  const auto apply = [into, other, n](auto combine) {
    reduce_elements(into, other, n, [combine](std::uint16_t a, std::uint16_t b) {
      return FromFloat(combine(ToFloat(a), ToFloat(b)));
    });
  };
  switch (op) {
    case ReduceOp::sum:
      return apply([](float a, float b) { return a + b; });
    case ReduceOp::min:
      return apply([](float a, float b) { return std::min(a, b); });
    case ReduceOp::max:
      return apply([](float a, float b) { return std::max(a, b); });
  }
}

template <class T>
void reduce_as(Buffer into, std::span<const std::byte> other, ReduceOp op) {
  reduce_typed(reinterpret_cast<T*>(into.data), reinterpret_cast<const T*>(other.data()),
               into.count, op);
}

}  // namespace

void reduce_into(Buffer into, std::span<const std::byte> other, ReduceOp op) {
  switch (into.type) {
    case ElementType::u8:
      return reduce_as<std::uint8_t>(into, other, op);
    case ElementType::i8:
      return reduce_as<std::int8_t>(into, other, op);
    case ElementType::i16:
      return reduce_as<std::int16_t>(into, other, op);
    case ElementType::i32:
      return reduce_as<std::int32_t>(into, other, op);
    case ElementType::i64:
      return reduce_as<std::int64_t>(into, other, op);
    case ElementType::f32:
      return reduce_as<float>(into, other, op);
    case ElementType::f64:
      return reduce_as<double>(into, other, op);
    case ElementType::f16:
      return reduce_half<f16_to_float, float_to_f16>(
          reinterpret_cast<std::uint16_t*>(into.data),
          reinterpret_cast<const std::uint16_t*>(other.data()), into.count, op);
    case ElementType::bf16:
      return reduce_half<bf16_to_float, float_to_bf16>(
          reinterpret_cast<std::uint16_t*>(into.data),
          reinterpret_cast<const std::uint16_t*>(other.data()), into.count, op);
  }
}

}  // namespace ddp::comm
