// SPDX-License-Identifier: Apache-2.0
// Values of all element types, and what collectives must make of them. All values are small
// integers, which every type represents exactly, so results are compared bitwise.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/element_type.h"
#include "ddp_runtime/comm/group/half_precision.h"

namespace ddp::comm::gpu {

inline constexpr std::array kTypes = {ElementType::u8,  ElementType::i32,  ElementType::i64,
                                      ElementType::f16, ElementType::bf16, ElementType::f32,
                                      ElementType::f64};
inline constexpr std::array kOps = {ReduceOp::sum, ReduceOp::min, ReduceOp::max};

// The value of element `i` on a rank before a collective: 1 to 5.
inline int input_value(int rank, std::size_t i) {
  return static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 3 + i / 1000) % 5) + 1;
}

inline int reduced_value(int ranks, ReduceOp op, std::size_t i) {
  int result = input_value(0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const int value = input_value(rank, i);
    if (op == ReduceOp::sum) result += value;
    if (op == ReduceOp::min) result = std::min(result, value);
    if (op == ReduceOp::max) result = std::max(result, value);
  }
  return result;
}

inline void encode_one(ElementType type, int value, unsigned char* to) {
  const auto put = [to](auto typed) { std::memcpy(to, &typed, sizeof(typed)); };
  switch (type) {
    case ElementType::u8:
      return put(static_cast<std::uint8_t>(value));
    case ElementType::i8:
      return put(static_cast<std::int8_t>(value));
    case ElementType::i16:
      return put(static_cast<std::int16_t>(value));
    case ElementType::i32:
      return put(static_cast<std::int32_t>(value));
    case ElementType::i64:
      return put(static_cast<std::int64_t>(value));
    case ElementType::f16:
      return put(float_to_f16(static_cast<float>(value)));
    case ElementType::bf16:
      return put(float_to_bf16(static_cast<float>(value)));
    case ElementType::f32:
      return put(static_cast<float>(value));
    case ElementType::f64:
      return put(static_cast<double>(value));
  }
}

template <class Value>
std::vector<unsigned char> encode(ElementType type, std::size_t count, const Value& value_of) {
  const std::size_t size = size_of(type);
  std::vector<unsigned char> bytes(count * size);
  for (std::size_t i = 0; i < count; ++i) encode_one(type, value_of(i), &bytes[i * size]);
  return bytes;
}

// Describes the first element in which the two differ; nullopt if they are equal.
inline std::optional<std::string> first_difference(const std::vector<unsigned char>& actual,
                                                   const std::vector<unsigned char>& expected,
                                                   std::size_t element_size) {
  if (actual.size() != expected.size()) return "the sizes differ";
  const auto [a, e] = std::mismatch(actual.begin(), actual.end(), expected.begin());
  if (a == actual.end()) return std::nullopt;
  const auto element = static_cast<std::size_t>(a - actual.begin()) / element_size;
  const auto hex = [&](const std::vector<unsigned char>& bytes) {
    std::string text;
    for (std::size_t i = element_size; i-- > 0;) {
      constexpr const char* kDigits = "0123456789abcdef";
      const unsigned byte = bytes[element * element_size + i];
      text += {kDigits[byte / 16], kDigits[byte % 16]};
    }
    return "0x" + text;
  };
  return "element " + std::to_string(element) + " is " + hex(actual) + " instead of " +
         hex(expected);
}

}  // namespace ddp::comm::gpu
