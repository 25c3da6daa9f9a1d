// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/kernels/check.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/kernels/cpu_grid.h"
#include "tests/unit/kernels/values.h"

namespace ddp::kernels {
namespace {

using test::Array;

struct Result {
  double sum = -1;
  float found_inf = 0;
};

template <class Element>
Result checked(const Array<Element>& data) {
  // Poisoned: what earlier launches left there must not matter.
  std::vector<double> partials(kMaxCheckBlocks, std::numeric_limits<double>::quiet_NaN());
  std::uint32_t ticket = 0;
  Result result;
  cpu::run_check<Element>(
      {data.data(), data.size(), partials.data(), &ticket, &result.sum, &result.found_inf},
      check_blocks(data.size()));
  return result;
}

template <class T>
class Check : public testing::Test {};
using CheckedTypes = testing::Types<F32, Bf16, F16>;
TYPED_TEST_SUITE(Check, CheckedTypes);

TYPED_TEST(Check, SumsSquares) {
  for (const std::size_t count : {0, 1, 2, 7, 8, 9, 4095, 4096, 5001, 70001}) {
    for (const std::size_t offset : {0, 1, 3, 5}) {
      Array<TypeParam> data(count, offset);
      data.randomize(static_cast<unsigned>(count));
      long double expected = 0;
      for (std::size_t i = 0; i < count; ++i) {
        expected += static_cast<long double>(data.get(i)) * data.get(i);
      }
      const Result result = checked(data);
      EXPECT_NEAR(result.sum, static_cast<double>(expected), 1e-13 * static_cast<double>(expected))
          << count << " elements at " << offset;
      EXPECT_EQ(result.found_inf, 0);
    }
  }
}

TYPED_TEST(Check, FindsWhatIsNotFinite) {
  for (const float bad :
       {NAN, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t at : {0, 1, 8, 5000, 9997, 9998}) {
      Array<TypeParam> data(9999, 1);
      data.randomize(1);
      data.set(at, bad);
      EXPECT_EQ(checked(data).found_inf, 1) << bad << " at " << at;
    }
  }
}

TEST(CheckValues, DoesNotOverflowOrLoseSmallOnes) {
  Array<F32> data(20000);
  for (std::size_t i = 0; i < data.size(); ++i) data.set(i, std::numeric_limits<float>::max());
  EXPECT_EQ(checked(data).found_inf, 0);
  EXPECT_GT(checked(data).sum, 1e80);
  for (std::size_t i = 0; i < data.size(); ++i) data.set(i, 1e-40F);
  EXPECT_NEAR(checked(data).sum, 20000 * 1e-80, 1e-80);
}

TEST(CheckValues, AFlagIsKept) {
  Array<F32> data(100);
  data.randomize(1);
  std::vector<double> partials(kMaxCheckBlocks);
  std::uint32_t ticket = 0;
  float found = 1;
  cpu::run_check<F32>({data.data(), 100, partials.data(), &ticket, nullptr, &found}, 1);
  EXPECT_EQ(found, 1);
  double sum = 0;
  cpu::run_check<F32>({data.data(), 100, partials.data(), &ticket, &sum, nullptr}, 1);
  EXPECT_GT(sum, 0);
}

// The sum of a grid must not depend on who computes it: golden bits of a fixed array.
TEST(CheckValues, SameBitsEverywhere) {
  Array<F32> data(123457);
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < data.size(); ++i) {
    state = state * 1664525U + 1013904223U;
    data.set(i, static_cast<float>(state >> 8U) * 0x1p-24F - 0.5F);
  }
  const double sum = checked(data).sum;
  EXPECT_EQ(sum, checked(data).sum);
  EXPECT_EQ(sum, 0x1.419485026cc1bp+13);
}

TEST(CheckBlocks, DependOnTheElementsOnly) {
  EXPECT_EQ(check_blocks(0), 1U);
  EXPECT_EQ(check_blocks(kCheckElementsPerBlock - 1), 1U);
  EXPECT_EQ(check_blocks(kCheckElementsPerBlock), 2U);
  EXPECT_EQ(check_blocks(std::uint64_t{1} << 40), kMaxCheckBlocks);
}

}  // namespace
}  // namespace ddp::kernels
