// SPDX-License-Identifier: Apache-2.0
// Charts of what ranks did, and the stage that holds up the others.
#include "ddp_runtime/pipeline/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::pipeline::test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using enum OperationKind;

// gpipe, two micro-batches; stage 1 takes twice as long. Rank 1 has begun 5 s before rank 0, and
// waited.
std::vector<RankTimes> two_ranks() {
  return {{{{forward, 0, 0}, 0, 0, 1},
           {{forward, 0, 1}, 1, 0, 2},
           {{backward, 0, 0}, 2, 7, 11},
           {{backward, 0, 1}, 11, 2, 15}},
          {{{forward, 1, 0}, 0, 6, 8},
           {{forward, 1, 1}, 8, 0, 10},
           {{backward, 1, 0}, 10, 0, 14},
           {{backward, 1, 1}, 14, 0, 18}}};
}

TEST(Timeline, MovesRanksToWhereTheyHaveReceivedNothingTooEarly) {
  const auto moved = aligned(two_ranks());
  EXPECT_EQ(moved[0][0].begin, 0);
  EXPECT_EQ(moved[1][0].begin, -5);
  EXPECT_EQ(moved[1][0].begin + moved[1][0].waited, 1);
  EXPECT_EQ(moved[1][3].end, 13);
}

TEST(Timeline, IsDrawn) {
  EXPECT_EQ(draw_timeline(two_ranks(), 15),
            "rank 0   01.......aa..bb\n"
            "rank 1   .0011aaaabbbb..\n");
}

TEST(Timeline, NamesTheRankThatIsBusiest) {
  const Layout layout{2, 2};
  const auto balance = division_of(two_ranks(), Schedule::gpipe, layout);
  EXPECT_THAT(balance.busy, ElementsAre(6, 12));
  EXPECT_EQ(balance.heaviest, 1);
  EXPECT_THAT(balance.span, DoubleNear(15, 1e-9));
  EXPECT_THAT(balance.balanced_span, DoubleNear(13.5, 1e-9));
  EXPECT_EQ(describe(balance, layout),
            "rank 1 (stage 1) computes for 12000.0 ms, 33 % more than the mean; with equal stages, "
            "the step would take 13500.0 ms instead of 15000.0 ms");
}

}  // namespace
}  // namespace ddp::pipeline::test
