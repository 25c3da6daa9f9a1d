// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/permutation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace ddp::data {
namespace {

std::vector<std::int64_t> all(std::int64_t size, std::uint64_t seed) {
  const Permutation order(size, seed);
  std::vector<std::int64_t> values(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) values[static_cast<std::size_t>(i)] = order(i);
  return values;
}

TEST(Permutation, IsAPermutationForEverySize) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000, 4097, 65536}) {
    auto values = all(size, 9);
    std::sort(values.begin(), values.end());
    for (std::int64_t i = 0; i < size; ++i) {
      ASSERT_EQ(values[static_cast<std::size_t>(i)], i) << "of " << size;
    }
  }
}

TEST(Permutation, StaysInRangeForHugeSizes) {
  const std::int64_t size = (std::int64_t{1} << 40) + 12345;
  const Permutation order(size, 1);
  for (std::int64_t i = 0; i < 1000; ++i) {
    EXPECT_GE(order(i * 1000003), 0);
    EXPECT_LT(order(i * 1000003), size);
  }
}

// Checkpoints depend on the order: a change would break every resumed run.
TEST(Permutation, NeverChanges) {
  EXPECT_EQ(all(10, 1), (std::vector<std::int64_t>{0, 2, 6, 7, 5, 4, 8, 9, 1, 3}));
  EXPECT_EQ(Permutation(1000000007, 42)(123456789), 665479815);
}

TEST(Permutation, SeedsGiveDifferentOrders) {
  EXPECT_NE(all(1000, 1), all(1000, 2));
  EXPECT_EQ(all(1000, 1), all(1000, 1));
}

// A biased order would show some samples early in every epoch. The position of sample 0 over many
// seeds must be uniform: chi-square over 20 cells, 19 degrees of freedom, 0.1 % limit 43.8.
TEST(Permutation, PositionsAreUniformOverSeeds) {
  constexpr int kCells = 20;
  constexpr int kSeeds = 20000;
  std::vector<int> counts(kCells);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    ++counts[static_cast<std::size_t>(Permutation(kCells, seed)(0))];
  }
  double chi_square = 0;
  for (const int count : counts) {
    const double expected = static_cast<double>(kSeeds) / kCells;
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_square, 43.8);
}

}  // namespace
}  // namespace ddp::data
