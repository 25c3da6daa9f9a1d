// SPDX-License-Identifier: Apache-2.0
// Ratios between blocks that ran in the same round.
#include "bench/statistics.h"

#include <gmock/gmock.h>

namespace ddp::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(BlockRatios, ComparesTheMediansOfEachRound) {
  const std::vector<double> ours = {2, 2, 9, 6, 6, 6};
  const std::vector<double> theirs = {1, 4, 4, 3, 3, 0.1};
  EXPECT_THAT(block_ratios(ours, theirs, 3), ElementsAre(0.5, 2.0));
}

TEST(BlockRatios, LeavesOutAnIncompleteRound) {
  EXPECT_THAT(block_ratios({4, 4, 4}, {2, 2, 2}, 2), ElementsAre(2.0));
  EXPECT_THAT(block_ratios({4, 4}, {2}, 2), IsEmpty());
}

TEST(Percentiles, UseTheNearestRank) {
  std::vector<double> values;
  for (int i = 10; i >= 1; --i) values.push_back(i);
  const auto result = percentiles(values);
  EXPECT_EQ(result.at("p10"), 1);
  EXPECT_EQ(result.at("p50"), 5);
  EXPECT_EQ(result.at("p90"), 9);
  EXPECT_EQ(median(values), 5);
}

}  // namespace
}  // namespace ddp::bench
