// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parameter_server/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::parameter_server {
namespace {

using testing::ElementsAre;
using Floats = std::vector<float>;

Shard shard(int ranks, std::int64_t staleness, double momentum = 0) {
  return {MomentumSgd({0}, {0}, momentum, 0, 0), ranks, staleness};
}

std::vector<int> answerable(Shard& shard) {
  std::vector<int> ranks;
  while (const auto rank = shard.take_answerable()) ranks.push_back(*rank);
  return ranks;
}

TEST(Shard, ReadWaitsForTheSlowest) {
  auto s = shard(3, 1);
  s.push(1, Floats{1}, 1);
  s.ask(1, 0);
  EXPECT_THAT(answerable(s), ElementsAre(1)) << "rank 1 is one step ahead of ranks 0 and 2";
  s.push(1, Floats{1}, 1);
  s.ask(1, 1);
  s.push(2, Floats{1}, 1);
  s.ask(2, 0);
  EXPECT_THAT(answerable(s), ElementsAre(2)) << "rank 1 is two steps ahead of rank 0";
  EXPECT_EQ(s.clocks().slowest_rank(), 0);
  s.push(0, Floats{1}, 1);
  s.ask(0, 0);
  EXPECT_THAT(answerable(s), ElementsAre(0, 1));
  EXPECT_THAT(answerable(s), ElementsAre()) << "each read is answered once";
}

TEST(Shard, WithStalenessGradientIsAppliedOnArrival) {
  auto s = shard(2, 3);
  s.push(1, Floats{1}, 1);
  s.push(1, Floats{2}, 1);
  EXPECT_EQ(s.values()[0], -3);
}

// A single 1 is lost when added to 2^24, but 1 + 1 is not, so the order of additions is visible.
TEST(Shard, WithoutStalenessGradientsAreAppliedTogetherInRankOrder) {
  const Floats gradients[] = {{-1}, {-1}, {-16777216}};
  for (const auto& order : {std::vector{0, 1, 2}, std::vector{2, 1, 0}, std::vector{1, 2, 0}}) {
    auto s = shard(3, 0);
    for (const int rank : order) {
      EXPECT_EQ(s.values()[0], 0) << "no rank may see a partial step";
      s.push(rank, gradients[rank], 1);
    }
    EXPECT_EQ(s.values()[0], 16777218);
  }
}

// Momentum decays once per step of all ranks, not once per gradient: m = 1/2, gradients of 1.
TEST(Shard, MomentumDecaysOncePerStepOfAllRanks) {
  auto s = shard(2, 2, 0.5);
  s.push(0, Floats{1}, 1);
  s.push(0, Floats{1}, 1);
  EXPECT_EQ(s.velocity()[0], 2) << "rank 1 has completed no step, so there is no decay yet";
  s.push(1, Floats{1}, 1);
  EXPECT_EQ(s.velocity()[0], 3);
  s.push(1, Floats{1}, 1);
  EXPECT_EQ(s.velocity()[0], 2.5F) << "3 / 2 plus the new gradient";
  EXPECT_EQ(s.values()[0], -4 - 1.5F);
}

TEST(Shard, StepWithoutGradientsChangesNothing) {
  const Floats one{1};  // must outlive the step for push()
  auto s = shard(2, 0, 0.5);
  s.push(0, one, 1);
  s.push(1, one, 1);
  s.push(0, {}, 1);
  s.push(1, {}, 1);
  EXPECT_EQ(s.velocity()[0], 2);
  EXPECT_EQ(s.clocks().slowest(), 2);
  s.push(0, {}, 1);
  s.push(1, one, 1);
  EXPECT_EQ(s.velocity()[0], 2) << "2 / 2 plus the new gradient";
}

}  // namespace
}  // namespace ddp::parameter_server
