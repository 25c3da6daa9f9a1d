// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/options/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/errors.h"

namespace ddp::train {
namespace {

TEST(LearningRate, WithoutWarmUpStartsWithTheScaledRate) {
  EXPECT_DOUBLE_EQ((LearningRate{0.1, 8, 0}.at(0)), 0.8);
  EXPECT_DOUBLE_EQ((LearningRate{0.1, 1, 0}.at(1000)), 0.1);
}

TEST(LearningRate, WarmsUpFromTheUnscaledRateInEqualSteps) {
  const LearningRate rate{0.1, 4, 3};
  EXPECT_DOUBLE_EQ(rate.at(0), 0.175);
  EXPECT_DOUBLE_EQ(rate.at(1), 0.25);
  EXPECT_DOUBLE_EQ(rate.at(2), 0.325);
  EXPECT_DOUBLE_EQ(rate.at(3), 0.4);
  EXPECT_DOUBLE_EQ(rate.at(100), 0.4);
}

TEST(LearningRate, WithoutScalingWarmsUpFromZero) {
  const LearningRate rate{0.2, 1, 1};
  EXPECT_DOUBLE_EQ(rate.at(0), 0.1);
  EXPECT_DOUBLE_EQ(rate.at(1), 0.2);
}

TEST(LearningRate, StepDecaysAtRegularIntervals) {
  LearningRate rate{1.0, 1, 0, Schedule::step, 3, 0.5};
  EXPECT_DOUBLE_EQ(rate.at(100, 0), 1);
  EXPECT_DOUBLE_EQ(rate.at(100, 2), 1);
  EXPECT_DOUBLE_EQ(rate.at(100, 3), 0.5);
  EXPECT_DOUBLE_EQ(rate.at(100, 8), 0.25);
}

TEST(LearningRate, CosineFallsToZeroFromTheEndOfTheWarmUp) {
  LearningRate rate{0.1, 4, 10, Schedule::cosine, 30, 0.1, 110};
  EXPECT_LT(rate.at(9), 0.4);
  EXPECT_DOUBLE_EQ(rate.at(10), 0.4);
  EXPECT_NEAR(rate.at(35), 0.4 * (1 + std::sqrt(0.5)) / 2, 1e-12);
  EXPECT_NEAR(rate.at(60), 0.2, 1e-12);
  EXPECT_GT(rate.at(109), 0);
  EXPECT_NEAR(rate.at(110), 0, 1e-12);
  EXPECT_NEAR(rate.at(500), 0, 1e-12) << "a resumed run may be longer than planned";
}

TEST(LearningRate, HasNoJumpsBetweenTwoSteps) {
  const LearningRate rate{1, 1, 10, Schedule::cosine, 30, 0.1, 60};
  EXPECT_DOUBLE_EQ(rate.at(4.5), (rate.at(4) + rate.at(5)) / 2);
  EXPECT_LT(rate.at(10.5), rate.at(10));
  EXPECT_GT(rate.at(10.5), rate.at(11));
}

TEST(ParseSchedule, ListsValidChoices) {
  EXPECT_EQ(parse_schedule("cosine"), Schedule::cosine);
  EXPECT_THROW(parse_schedule("linear"), UsageError);
}

}  // namespace
}  // namespace ddp::train
