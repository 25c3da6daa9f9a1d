// SPDX-License-Identifier: Apache-2.0
// Element-wise reductions in rank order, for NCCL's numbers of types and operations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "ddp_runtime/comm/group/half_precision.h"

namespace ddp::fake {

struct Half {
  std::uint16_t bits;
  static float widen(Half h) { return comm::f16_to_float(h.bits); }
  static Half narrow(float value) { return {comm::float_to_f16(value)}; }
};
struct Bfloat {
  std::uint16_t bits;
  static float widen(Bfloat h) { return comm::bf16_to_float(h.bits); }
  static Bfloat narrow(float value) { return {comm::float_to_bf16(value)}; }
};

template <class T>
T combine(T a, T b, int op) {
  if (op == 2) return std::max(a, b);
  if (op == 3) return std::min(a, b);
  return static_cast<T>(a + b);
}
template <>
inline Half combine(Half a, Half b, int op) {
  return Half::narrow(combine(Half::widen(a), Half::widen(b), op));
}
template <>
inline Bfloat combine(Bfloat a, Bfloat b, int op) {
  return Bfloat::narrow(combine(Bfloat::widen(a), Bfloat::widen(b), op));
}

template <class T>
std::vector<std::byte> reduce_as(const std::vector<const std::byte*>& inputs, std::size_t count,
                                 int op) {
  std::vector<std::byte> result(inputs.front(), inputs.front() + count * sizeof(T));
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      T a;
      T b;
      std::memcpy(&a, result.data() + i * sizeof(T), sizeof(T));
      std::memcpy(&b, inputs[rank] + i * sizeof(T), sizeof(T));
      const T c = combine(a, b, op);
      std::memcpy(result.data() + i * sizeof(T), &c, sizeof(T));
    }
  }
  return result;
}

inline std::vector<std::byte> reduce(const std::vector<const std::byte*>& inputs, std::size_t count,
                                     int type, int op) {
  switch (type) {
    case 0:
      return reduce_as<std::int8_t>(inputs, count, op);
    case 1:
      return reduce_as<std::uint8_t>(inputs, count, op);
    case 2:
      return reduce_as<std::int32_t>(inputs, count, op);
    case 4:
      return reduce_as<std::int64_t>(inputs, count, op);
    case 6:
      return reduce_as<Half>(inputs, count, op);
    case 7:
      return reduce_as<float>(inputs, count, op);
    case 8:
      return reduce_as<double>(inputs, count, op);
    case 9:
      return reduce_as<Bfloat>(inputs, count, op);
    default:
      throw std::invalid_argument("the fake cannot reduce this type");
  }
}

}  // namespace ddp::fake
