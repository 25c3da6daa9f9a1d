// SPDX-License-Identifier: Apache-2.0
// The difference between two arrays, for every element type.

#include "ddp_runtime/tools/ckpt/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <span>

namespace ddp::ckpt::tool {
namespace {

template <typename Element>
OwnedArray array_of(DType dtype, const std::vector<Element>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  OwnedArray array{dtype, {values.size()}, {bytes.begin(), bytes.end()}};
  return array;
}

template <typename Element>
ArrayDifference difference(DType dtype, const std::vector<Element>& a,
                           const std::vector<Element>& b) {
  return compare_arrays(array_of(dtype, a), array_of(dtype, b));
}

TEST(Compare, FindsTheLargestDifference) {
  const ArrayDifference d = difference<float>(DType::float32, {1, 2, 3, 4}, {1, 2.5, 1, 4});
  EXPECT_EQ(d.elements, 2U);
  EXPECT_EQ(d.max_abs, 2);
  EXPECT_EQ(difference<double>(DType::float64, {1e300}, {-1e300}).max_abs, 2e300);
  EXPECT_EQ(difference<std::int8_t>(DType::int8, {-128}, {127}).max_abs, 255);
  EXPECT_EQ(difference<std::uint8_t>(DType::uint8, {3}, {250}).max_abs, 247);
  EXPECT_EQ(difference<std::uint8_t>(DType::boolean, {0, 1}, {1, 1}).max_abs, 1);
  EXPECT_EQ(difference<std::int16_t>(DType::int16, {-32768}, {32767}).max_abs, 65535);
  EXPECT_EQ(difference<std::int32_t>(DType::int32, {5}, {-5}).max_abs, 10);
  EXPECT_EQ(difference<std::uint16_t>(DType::uint16, {0}, {65535}).max_abs, 65535);
  EXPECT_EQ(difference<std::uint32_t>(DType::uint32, {7}, {5}).max_abs, 2);
  EXPECT_EQ(difference<std::uint64_t>(DType::uint64, {0}, {1ULL << 63}).max_abs, 0x1p63);
  using Complex = std::complex<float>;
  EXPECT_EQ(difference<Complex>(DType::complex64, {{1, 2}}, {{4, 6}}).max_abs, 5);
  EXPECT_EQ(difference<std::complex<double>>(DType::complex128, {{0, 1}}, {{0, 3}}).max_abs, 2);
}

TEST(Compare, IntegersDoNotOverflow) {
  constexpr auto kMin = std::numeric_limits<std::int64_t>::min();
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(difference<std::int64_t>(DType::int64, {kMin}, {kMax}).max_abs,
            static_cast<double>(std::numeric_limits<std::uint64_t>::max()));
}

TEST(Compare, ComparesHalfFloatsByValue) {
  // 1.5 and -2 in both types, and the smallest subnormal of float16.
  EXPECT_EQ(difference<std::uint16_t>(DType::float16, {0x3E00}, {0xC000}).max_abs, 3.5);
  EXPECT_EQ(difference<std::uint16_t>(DType::bfloat16, {0x3FC0}, {0xC000}).max_abs, 3.5);
  EXPECT_EQ(difference<std::uint16_t>(DType::float16, {0x0001}, {0x0000}).max_abs,
            std::ldexp(1.0, -24));
  EXPECT_EQ(difference<std::uint16_t>(DType::float16, {0x7BFF}, {0x0000}).max_abs, 65504);
  EXPECT_TRUE(std::isnan(difference<std::uint16_t>(DType::float16, {0x7C00}, {0}).max_abs));
  EXPECT_TRUE(std::isnan(difference<std::uint16_t>(DType::float16, {0x7E00}, {0}).max_abs));
}

TEST(Compare, EqualityIsBitwise) {
  const float nan = std::nanf("");
  EXPECT_EQ(difference<float>(DType::float32, {nan}, {nan}).elements, 0U);
  const ArrayDifference zeros = difference<float>(DType::float32, {0.0F}, {-0.0F});
  EXPECT_EQ(zeros.elements, 1U);
  EXPECT_EQ(zeros.max_abs, 0);
  // A later finite difference does not hide a non-finite one.
  const ArrayDifference d = difference<float>(DType::float32, {nan, 1}, {1, 5});
  EXPECT_EQ(d.elements, 2U);
  EXPECT_TRUE(std::isnan(d.max_abs));
  EXPECT_EQ(difference<float>(DType::float32, {}, {}).elements, 0U);
}

}  // namespace
}  // namespace ddp::ckpt::tool
