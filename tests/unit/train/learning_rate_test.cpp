#include "ddp_runtime/train/learning_rate.h"

#include <gtest/gtest.h>

namespace ddp::train {
namespace {

TEST(LearningRate, WithoutWarmUpIsTheScaledRateFromTheStart) {
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

}  // namespace
}  // namespace ddp::train
