// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/clock_fit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ddp::profile {
namespace {

// The ends of collectives of `steps` steps of 50 ms, on a clock that is `offset` seconds ahead and
// runs faster by `rate`. A fraction `late` of the ends is up to 20 ms late on either node.
std::vector<CommonMoment> moments(int steps, double offset, double rate, double late) {
  std::mt19937_64 random(17);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<CommonMoment> list;
  for (int i = 0; i < steps; ++i) {
    const double now = 1000 + 0.05 * i;
    const auto delay = [&] {
      return uniform(random) < late ? 0.02 * uniform(random) : 2e-5 * uniform(random);
    };
    list.push_back({now + delay(), (now + delay()) * (1 + rate) + offset});
  }
  return list;
}

TEST(ClockFit, AlignsClocksThatDifferByFiveSecondsAnd200Ppm) {
  for (const double late : {0.0, 0.1, 0.2}) {
    const auto fit = fit_clock(moments(60, 5, 200e-6, late));
    ASSERT_TRUE(fit);
    EXPECT_LT(fit->residual, 1e-4);
    for (const double now : {1000.0, 1001.5, 1003.0}) {
      EXPECT_NEAR(fit->here(now * (1 + 200e-6) + 5), now, 1e-4) << now << ", late " << late;
    }
  }
}

TEST(ClockFit, FewMomentsGiveAnOffsetOnly) {
  const auto fit = fit_clock(moments(3, -7, 0, 0));
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->rate, 0);
  EXPECT_NEAR(fit->here(1000.1 - 7), 1000.1, 1e-4);
  EXPECT_FALSE(fit_clock({}));
}

TEST(ClockFit, MomentsAtOneTimeShowNoRate) {
  const std::vector<CommonMoment> same(20, {3, 8});
  const auto fit = fit_clock(same);
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->rate, 0);
  EXPECT_EQ(fit->offset, -5);
}

// Ends that are not those of one collective on both sides.
TEST(ClockFit, UnrelatedMomentsHaveALargeResidual) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<CommonMoment> list;
  for (int i = 0; i < 100; ++i) list.push_back({uniform(random), uniform(random)});
  EXPECT_GT(fit_clock(list)->residual, 0.01);
}

// A thousand collectives of a step count as well as two hundred of them.
TEST(ClockFit, ManyMomentsAreThinnedOut) {
  const auto fit = fit_clock(moments(20000, 1, 50e-6, 0.1));
  ASSERT_TRUE(fit);
  EXPECT_NEAR(fit->rate, -50e-6, 2e-6);
}

}  // namespace
}  // namespace ddp::profile
