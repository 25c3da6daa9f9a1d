// SPDX-License-Identifier: Apache-2.0
// Converts float16 and bfloat16 to float32 and back, rounding to nearest even (IEEE 754).
#pragma once

#include <bit>
#include <cstdint>

namespace ddp::comm {

inline float bf16_to_float(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

inline std::uint16_t float_to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
  const std::uint32_t round_to_even = 0x7fffU + ((bits >> 16U) & 1U);
  return static_cast<std::uint16_t>((bits + round_to_even) >> 16U);
}

inline float f16_to_float(std::uint16_t bits) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
  const std::uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // infinity and NaN
    return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13U));
  }
  if (magnitude >= 0x0400U) {  // normal: rebias the exponent from 15 to 127
    return std::bit_cast<float>(sign | ((magnitude << 13U) + 0x38000000U));
  }
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
}

inline std::uint16_t float_to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);   // NaN
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);  // overflow
  if (magnitude < 0x38800000U) {
    // Subnormal half: adding 0.5 aligns the mantissa so that the addition does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t round_to_even = 0xfffU + ((magnitude >> 13U) & 1U);
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000U + round_to_even) >> 13U));
}

}  // namespace ddp::comm
