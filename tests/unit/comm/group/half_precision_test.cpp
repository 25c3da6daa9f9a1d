// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/group/half_precision.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ddp::comm {
namespace {

TEST(HalfPrecision, EveryFloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value)))) << bits;
    } else {
      EXPECT_EQ(float_to_f16(value), half) << bits;
    }
  }
}

TEST(HalfPrecision, EveryBfloat16SurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = bf16_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value)))) << bits;
    } else {
      EXPECT_EQ(float_to_bf16(value), half) << bits;
    }
  }
}

#ifdef __FLT16_MANT_DIG__
// Compares with the compiler's own type. The values include all halfway cases between neighbors,
// where rounding to even matters.
TEST(HalfPrecision, RoundsToFloat16LikeTheCompiler) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = f16_to_float(static_cast<std::uint16_t>(bits));
    const float high = f16_to_float(static_cast<std::uint16_t>(bits + 1));
    const float middle = std::isinf(high) ? 65520.0F : (low + high) / 2;
    for (const float value :
         {middle, std::nextafter(middle, low), std::nextafter(middle, 1e30F), -middle}) {
      const auto expected = static_cast<_Float16>(value);
      EXPECT_EQ(float_to_f16(value), std::bit_cast<std::uint16_t>(expected)) << value;
    }
  }
}
#endif

TEST(HalfPrecision, Float16MatchesKnownValues) {
  EXPECT_EQ(float_to_f16(1.0F), 0x3c00);
  EXPECT_EQ(float_to_f16(-2.0F), 0xc000);
  EXPECT_EQ(float_to_f16(65504.0F), 0x7bff);
  EXPECT_EQ(float_to_f16(65519.996F), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0F), 0x7c00) << "the halfway point above the largest overflows";
  EXPECT_EQ(float_to_f16(0x1p-24F), 0x0001);
  EXPECT_EQ(float_to_f16(0x1p-25F), 0x0000) << "halfway to the smallest subnormal rounds to even";
}

TEST(HalfPrecision, Bfloat16RoundsToEven) {
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000U)), 0x3f80) << "halfway, even below";
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000U)), 0x3f82) << "halfway, even above";
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

}  // namespace
}  // namespace ddp::comm
