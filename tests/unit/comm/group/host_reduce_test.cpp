// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/group/host_reduce.h"

#include <gtest/gtest.h>

#include <vector>

#include "ddp_runtime/comm/group/half_precision.h"

namespace ddp::comm {
namespace {

template <class T>
std::vector<T> reduced(std::vector<T> a, std::vector<T> b, ReduceOp op, ElementType type) {
  reduce_into({reinterpret_cast<std::byte*>(a.data()), a.size(), type}, std::as_bytes(std::span(b)),
              op);
  return a;
}

TEST(HostReduce, SupportsEveryOpOfEveryType) {
  EXPECT_EQ(reduced<float>({1, 5}, {2, 3}, ReduceOp::sum, ElementType::f32),
            (std::vector<float>{3, 8}));
  EXPECT_EQ(reduced<float>({1, 5}, {2, 3}, ReduceOp::min, ElementType::f32),
            (std::vector<float>{1, 3}));
  EXPECT_EQ(reduced<float>({1, 5}, {2, 3}, ReduceOp::max, ElementType::f32),
            (std::vector<float>{2, 5}));
  EXPECT_EQ(reduced<double>({1, 5}, {2, 3}, ReduceOp::sum, ElementType::f64),
            (std::vector<double>{3, 8}));
  EXPECT_EQ(reduced<std::int64_t>({1, -5}, {2, 3}, ReduceOp::min, ElementType::i64),
            (std::vector<std::int64_t>{1, -5}));
  EXPECT_EQ(reduced<std::int32_t>({1, -5}, {2, 3}, ReduceOp::max, ElementType::i32),
            (std::vector<std::int32_t>{2, 3}));
  EXPECT_EQ(reduced<std::uint8_t>({1, 250}, {2, 3}, ReduceOp::sum, ElementType::u8),
            (std::vector<std::uint8_t>{3, 253}));
  EXPECT_EQ(reduced<std::int8_t>({1, 100}, {-2, 100}, ReduceOp::sum, ElementType::i8),
            (std::vector<std::int8_t>{-1, -56}));
  EXPECT_EQ(reduced<std::int8_t>({1, -100}, {-2, 100}, ReduceOp::min, ElementType::i8),
            (std::vector<std::int8_t>{-2, -100}));
  EXPECT_EQ(reduced<std::int16_t>({1, 30000}, {-2, 30000}, ReduceOp::sum, ElementType::i16),
            (std::vector<std::int16_t>{-1, -5536}));
  EXPECT_EQ(reduced<std::int16_t>({1, -300}, {-2, 300}, ReduceOp::max, ElementType::i16),
            (std::vector<std::int16_t>{1, 300}));
}

TEST(HostReduce, HalfPrecisionSumsUseFloat32) {
  // 2048 + 1 is not a float16. The float32 sum is rounded once, to even.
  EXPECT_EQ(
      reduced<std::uint16_t>({float_to_f16(2048), float_to_f16(1.5F)},
                             {float_to_f16(1), float_to_f16(2)}, ReduceOp::sum, ElementType::f16),
      (std::vector<std::uint16_t>{float_to_f16(2048), float_to_f16(3.5F)}));
  EXPECT_EQ(reduced<std::uint16_t>({float_to_bf16(256), float_to_bf16(-1)},
                                   {float_to_bf16(3), float_to_bf16(4)}, ReduceOp::sum,
                                   ElementType::bf16),
            (std::vector<std::uint16_t>{float_to_bf16(260), float_to_bf16(3)}));
  EXPECT_EQ(reduced<std::uint16_t>({float_to_bf16(256), float_to_bf16(-1)},
                                   {float_to_bf16(3), float_to_bf16(4)}, ReduceOp::max,
                                   ElementType::bf16),
            (std::vector<std::uint16_t>{float_to_bf16(256), float_to_bf16(4)}));
}

}  // namespace
}  // namespace ddp::comm
