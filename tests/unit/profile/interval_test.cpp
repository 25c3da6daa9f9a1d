// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/interval.h"

#include <gtest/gtest.h>

namespace ddp::profile {
namespace {

Interval between(int begin, int end) {
  return {Clock::time_point(std::chrono::seconds(begin)),
          Clock::time_point(std::chrono::seconds(end))};
}

TEST(Interval, CoveredSecondsCountOverlapsOnce) {
  EXPECT_DOUBLE_EQ(covered_seconds({}), 0);
  EXPECT_DOUBLE_EQ(covered_seconds({between(1, 3)}), 2);
  EXPECT_DOUBLE_EQ(covered_seconds({between(5, 6), between(1, 3), between(2, 4)}), 4);
  EXPECT_DOUBLE_EQ(covered_seconds({between(1, 9), between(2, 3)}), 8);
  EXPECT_DOUBLE_EQ(covered_seconds({between(1, 2), between(2, 3)}), 2);
  EXPECT_DOUBLE_EQ(covered_seconds({between(3, 1), between(2, 2)}), 0)
      << "empty intervals cover nothing";
}

TEST(Interval, MergedIntervalsAreSortedAndDisjoint) {
  const auto result = merged({between(5, 6), between(1, 3), between(2, 4), between(4, 4)});
  ASSERT_EQ(result.size(), 2U);
  EXPECT_EQ(result[0].end, between(0, 4).end);
  EXPECT_EQ(result[1].begin, between(5, 6).begin);
}

TEST(Interval, CoveredSecondsAreLimitedToAWindow) {
  EXPECT_DOUBLE_EQ(covered_seconds_within({between(0, 10)}, between(3, 5)), 2);
  EXPECT_DOUBLE_EQ(covered_seconds_within({between(0, 4), between(8, 12)}, between(3, 9)), 2);
  EXPECT_DOUBLE_EQ(covered_seconds_within({between(0, 2)}, between(3, 9)), 0);
}

}  // namespace
}  // namespace ddp::profile
