// SPDX-License-Identifier: Apache-2.0
// Compares element by element: first by bits, then by value if the bits differ. 16-bit floats are
// widened in software, because the compiler does not have such types.

#include "ddp_runtime/tools/ckpt/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ddp::ckpt::tool {
namespace {

double float_from_half(std::uint16_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10) & 0x1F;
  const int mantissa = bits & 0x3FF;
  if (exponent == 0x1F)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

double float_from_bfloat16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

template <typename Part>
double distance_of(std::complex<Part> a, std::complex<Part> b) {
  return std::abs(std::complex<double>(a) - std::complex<double>(b));
}

template <typename Stored>
double distance_of(Stored a, Stored b) {
  if constexpr (std::is_same_v<Stored, std::uint64_t>) {
    return static_cast<double>(std::max(a, b) - std::min(a, b));
  } else if constexpr (std::is_integral_v<Stored>) {
    // Widens both values and subtracts without sign, which is exact even if a - b would overflow.
    const auto [low, high] = std::minmax({std::int64_t{a}, std::int64_t{b}});
    return static_cast<double>(static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low));
  } else {
    return std::abs(static_cast<double>(a) - static_cast<double>(b));
  }
}

double keep_larger(double largest, double candidate) {
  if (!std::isfinite(candidate)) return std::numeric_limits<double>::quiet_NaN();
  return std::max(largest, candidate);  // this argument order keeps a NaN
}

// `Stored` is the element type of the arrays; `widen` converts an element to a number that can be
// subtracted.
template <typename Stored, typename Widen>
ArrayDifference compare_as(const OwnedArray& a, const OwnedArray& b, const Widen& widen) {
  ArrayDifference difference;
  for (std::size_t at = 0; at + sizeof(Stored) <= a.bytes.size(); at += sizeof(Stored)) {
    if (std::memcmp(&a.bytes[at], &b.bytes[at], sizeof(Stored)) == 0) continue;
    Stored x{};
    Stored y{};
    std::memcpy(&x, &a.bytes[at], sizeof(Stored));
    std::memcpy(&y, &b.bytes[at], sizeof(Stored));
    ++difference.elements;
    difference.max_abs = keep_larger(difference.max_abs, distance_of(widen(x), widen(y)));
  }
  return difference;
}

template <typename Stored>
ArrayDifference compare_plain(const OwnedArray& a, const OwnedArray& b) {
  return compare_as<Stored>(a, b, [](Stored value) { return value; });
}

}  // namespace

ArrayDifference compare_arrays(const OwnedArray& a, const OwnedArray& b) {
  switch (a.dtype) {
    case DType::float64:
      return compare_plain<double>(a, b);
    case DType::float32:
      return compare_plain<float>(a, b);
    case DType::float16:
      return compare_as<std::uint16_t>(a, b, float_from_half);
    case DType::bfloat16:
      return compare_as<std::uint16_t>(a, b, float_from_bfloat16);
    case DType::int64:
      return compare_plain<std::int64_t>(a, b);
    case DType::int32:
      return compare_plain<std::int32_t>(a, b);
    case DType::int16:
      return compare_plain<std::int16_t>(a, b);
    case DType::int8:
      return compare_plain<std::int8_t>(a, b);
    case DType::uint8:
    case DType::boolean:
    case DType::float8_e4m3fn:  // compared by their bits
    case DType::float8_e5m2:
      return compare_plain<std::uint8_t>(a, b);
    case DType::uint16:
      return compare_plain<std::uint16_t>(a, b);
    case DType::uint32:
      return compare_plain<std::uint32_t>(a, b);
    case DType::uint64:
      return compare_plain<std::uint64_t>(a, b);
    case DType::complex64:
      return compare_plain<std::complex<float>>(a, b);
    case DType::complex128:
      return compare_plain<std::complex<double>>(a, b);
  }
  return {};
}

}  // namespace ddp::ckpt::tool
