// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parameter_server/momentum_sgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::parameter_server {
namespace {

using testing::ElementsAre;
using Floats = std::vector<float>;

// Uses powers of two, so that every sum is exact: v = 1/2 v + 1/4 p + g_1 + g_2, p = p - 1/8 v.
TEST(MomentumSgd, TickWithGradientsEqualsOneStepOfTheirSum) {
  MomentumSgd sgd({8, 16}, {4, 4}, 0.5, 0.25, 1);
  sgd.tick(0.125);
  sgd.add(Floats{1, 2}, 0.125);
  sgd.add(Floats{3, -8}, 0.125);
  // Decay applies only to the first element: the velocities are 2 + 2 + 4 and 2 - 6.
  EXPECT_THAT(sgd.velocity(), ElementsAre(8, -4));
  EXPECT_THAT(sgd.values(), ElementsAre(7, 16.5));
}

TEST(MomentumSgd, GradientsMayArriveInAnyOrder) {
  MomentumSgd one({0}, {1}, 0.5, 0, 0);
  MomentumSgd other({0}, {1}, 0.5, 0, 0);
  one.tick(0.5);
  one.add(Floats{1}, 0.5);
  one.add(Floats{2}, 0.5);
  other.tick(0.5);
  other.add(Floats{2}, 0.5);
  other.add(Floats{1}, 0.5);
  EXPECT_EQ(one.values()[0], other.values()[0]);
  EXPECT_EQ(one.velocity()[0], 3.5F);
}

TEST(MomentumSgd, WithoutMomentumThePreviousStepHasNoEffect) {
  MomentumSgd sgd({0}, {0}, 0, 0, 0);
  sgd.add(Floats{4}, 1);
  sgd.tick(1);
  EXPECT_EQ(sgd.values()[0], -4);
  EXPECT_EQ(sgd.velocity()[0], 0);
}

}  // namespace
}  // namespace ddp::parameter_server
