// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/plan/shard_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace ddp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(ShardPlan, CutsBetweenRowsNearestToEqualShards) {
  // 10 rows of 3, then from element 32 on 2 rows of 4: 40 elements.
  const std::vector<ArraySize> arrays = {{10, 3}, {2, 4}};
  const auto plan = plan_shards(arrays, 2);
  ASSERT_EQ(plan.flats.size(), 1U);
  EXPECT_THAT(plan.flats[0].offsets, ElementsAre(0, 32));
  EXPECT_THAT(plan.flats[0].starts, ElementsAre(0, 21, 40));
  EXPECT_THAT(rows_of(plan, arrays, 0), ElementsAre(RowRange{0, 0, 7}));
  EXPECT_THAT(rows_of(plan, arrays, 1), ElementsAre(RowRange{0, 7, 3}, RowRange{1, 0, 2}));
}

TEST(ShardPlan, KeepsArraysOfDifferentKeysApart) {
  const std::vector<ArraySize> arrays = {{4, 1, 7}, {4, 1, 5}, {4, 1, 7}};
  const auto plan = plan_shards(arrays, 1);
  ASSERT_EQ(plan.flats.size(), 2U);
  EXPECT_THAT(plan.flats[0].arrays, ElementsAre(0, 2));
  EXPECT_THAT(plan.flats[1].arrays, ElementsAre(1));
}

TEST(ShardPlan, LeavesRanksWithoutRowsIfThereAreTooFew) {
  const std::vector<ArraySize> arrays = {{1, 100}};
  const auto plan = plan_shards(arrays, 4);
  int owners = 0;
  for (int rank = 0; rank < 4; ++rank) owners += rows_of(plan, arrays, rank).empty() ? 0 : 1;
  EXPECT_EQ(owners, 1);
}

TEST(ShardPlan, TakesArraysWithoutElementsAndNoArrays) {
  const std::vector<ArraySize> arrays = {{0, 1}, {3, 1}, {0, 1}};
  const auto plan = plan_shards(arrays, 3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(rows_of(plan, arrays, rank), ElementsAre(RowRange{1, rank, 1}));
  }
  EXPECT_THAT(plan_shards({}, 3).flats, IsEmpty());
}

void expect_one_owner_of_each_row(const ShardPlan& plan, const std::vector<ArraySize>& arrays,
                                  int ranks) {
  std::vector<std::vector<int>> owners(arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    owners[i].resize(static_cast<std::size_t>(arrays[i].rows));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    for (const auto& range : rows_of(plan, arrays, rank)) {
      for (std::int64_t row = range.first; row < range.first + range.count; ++row) {
        ++owners[range.array].at(static_cast<std::size_t>(row));
      }
    }
  }
  for (const auto& of_rows : owners) EXPECT_THAT(of_rows, testing::Each(1));
}

// Random arrays: each row belongs to one rank, and shards are as equal as rows and gaps allow.
TEST(ShardPlan, GivesEachRowToOneRank) {
  std::mt19937 random(1);
  const auto below = [&](int n) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
  };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<ArraySize> arrays(static_cast<std::size_t>(1 + below(9)));
    std::int64_t longest_row = 0;
    for (auto& array : arrays) {
      array = {below(40), 1 + below(60), static_cast<int>(below(2))};
      longest_row = std::max(longest_row, array.row_elements);
    }
    const int ranks = static_cast<int>(1 + below(8));
    const auto plan = plan_shards(arrays, ranks);
    expect_one_owner_of_each_row(plan, arrays, ranks);
    for (const auto& flat : plan.flats) {
      ASSERT_EQ(flat.starts.size(), static_cast<std::size_t>(ranks) + 1);
      for (std::size_t r = 0; r + 1 < flat.starts.size(); ++r) {
        const auto size = flat.starts[r + 1] - flat.starts[r];
        EXPECT_LE(std::abs(size - flat.elements / ranks), longest_row + kShardAlignment) << trial;
      }
    }
  }
}

// ---- Equal shards

bool has_equal_shards(const ShardPlan::Flat& flat) {
  const auto shard = flat.starts.at(1);
  for (std::size_t r = 0; r < flat.starts.size(); ++r) {
    if (flat.starts[r] != static_cast<std::int64_t>(r) * shard) return false;
  }
  return flat.starts.back() == flat.elements;
}

// All rows are whole, none shares memory with another one, and arrays are aligned.
void expect_possible(const ShardPlan& plan, const std::vector<ArraySize>& arrays, int ranks) {
  expect_one_owner_of_each_row(plan, arrays, ranks);
  for (const auto& flat : plan.flats) {
    std::int64_t end = 0;
    for (std::size_t i = 0; i < flat.arrays.size(); ++i) {
      const auto& array = arrays[flat.arrays[i]];
      EXPECT_GE(flat.offsets[i], end);
      if (array.elements() > 0) {
        EXPECT_EQ(flat.offsets[i] % kShardAlignment, 0);
      }
      end = flat.offsets[i] + array.elements();
      for (const auto start : flat.starts) {
        const auto into = start - flat.offsets[i];
        if (0 < into && into < array.elements()) {
          EXPECT_EQ(into % array.row_elements, 0);
        }
      }
    }
    EXPECT_GE(flat.elements, end);
  }
}

TEST(EqualShards, BeginAtARowOfAnArrayThatWasMovedForIt) {
  // Without the gap of 16 elements, element 288 would be within row 4 of the second array.
  const std::vector<ArraySize> arrays = {{5, 16}, {10, 48}};
  const auto plan = plan_shards(arrays, 2, ShardSizes::equal);
  EXPECT_THAT(plan.flats[0].offsets, ElementsAre(0, 96));
  EXPECT_THAT(plan.flats[0].starts, ElementsAre(0, 288, 576));
  EXPECT_EQ(plan.flats[0].elements, 576);
  EXPECT_THAT(rows_of(plan, arrays, 0), ElementsAre(RowRange{0, 0, 5}, RowRange{1, 0, 4}));
  EXPECT_THAT(rows_of(plan, arrays, 1), ElementsAre(RowRange{1, 4, 6}));
}

TEST(EqualShards, DivideAnArrayThatIsLongerThanAShard) {
  const std::vector<ArraySize> arrays = {{100, 48}};
  const auto plan = plan_shards(arrays, 3, ShardSizes::equal);
  EXPECT_THAT(plan.flats[0].starts, ElementsAre(0, 1632, 3264, 4896));
  EXPECT_THAT(rows_of(plan, arrays, 2), ElementsAre(RowRange{0, 68, 32}));
}

TEST(EqualShards, AreGivenUpIfTheyWouldWasteMemory) {
  const std::vector<ArraySize> arrays = {{1, 100000}, {1, 3}};
  const auto plan = plan_shards(arrays, 4, ShardSizes::equal);
  EXPECT_EQ(plan.flats[0].starts, plan_shards(arrays, 4).flats[0].starts);
  EXPECT_EQ(plan.flats[0].offsets, plan_shards(arrays, 4).flats[0].offsets);
}

TEST(EqualShards, OfBlocksOfATransformerHaveFewGaps) {
  constexpr std::int64_t kWidth = 768;
  const std::vector<ArraySize> arrays = {
      {kWidth, 1},          {kWidth, 1},     {3 * kWidth, kWidth}, {3 * kWidth, 1},
      {kWidth, kWidth},     {kWidth, 1},     {kWidth, 1},          {kWidth, 1},
      {4 * kWidth, kWidth}, {4 * kWidth, 1}, {kWidth, 4 * kWidth}, {kWidth, 1}};
  for (int ranks = 1; ranks <= 64; ++ranks) {
    const auto plan = plan_shards(arrays, ranks, ShardSizes::equal);
    EXPECT_TRUE(has_equal_shards(plan.flats[0])) << ranks;
    EXPECT_LT(plan.flats[0].elements, 7'087'872 * 1.03) << ranks;
    expect_possible(plan, arrays, ranks);
  }
}

TEST(EqualShards, ArePossibleForAnyArrays) {
  std::mt19937 random(2);
  const auto below = [&](int n) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(n));
  };
  int equal = 0;
  constexpr int kTrials = 500;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<ArraySize> arrays(static_cast<std::size_t>(1 + below(9)));
    for (auto& array : arrays) {
      array = {below(2000), 1 + below(60), static_cast<int>(below(2))};
    }
    const int ranks = static_cast<int>(1 + below(8));
    const auto plan = plan_shards(arrays, ranks, ShardSizes::equal);
    SCOPED_TRACE(trial);
    expect_possible(plan, arrays, ranks);
    for (const auto& flat : plan.flats) equal += has_equal_shards(flat) ? 1 : 0;
  }
  EXPECT_GT(equal, kTrials / 4);
  EXPECT_THAT(plan_shards({}, 3, ShardSizes::equal).flats, IsEmpty());
}

}  // namespace
}  // namespace ddp
