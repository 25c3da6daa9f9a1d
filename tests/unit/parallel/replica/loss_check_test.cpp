// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/replica/loss_check.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "tests/unit/test_device.h"

namespace ddp {
namespace {

constexpr float kFine = 1;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

LossCheck::Result end_of_step(LossCheck& check, std::int64_t step,
                              const std::vector<float>& losses) {
  check.begin_step();
  for (const float loss : losses) check.add(test::on_test_device(torch::tensor(loss)));
  return check.end_step(step);
}

TEST(LossCheck, CountsEveryMicroBatch) {
  LossCheck check(/*late=*/false);
  EXPECT_TRUE(end_of_step(check, 1, {kFine, kFine}).finite);
  std::int64_t step = 1;
  for (const float bad : {kNan, kInfinity, -kInfinity}) {
    for (const auto& losses : {std::vector{bad, kFine}, {kFine, bad}}) {
      const auto result = end_of_step(check, ++step, losses);
      EXPECT_FALSE(result.finite) << bad;
      EXPECT_EQ(result.step, step);
    }
  }
  EXPECT_TRUE(end_of_step(check, ++step, {kFine}).finite);
}

TEST(LossCheck, LateResultIsThatOfThePreviousStep) {
  LossCheck check(/*late=*/true);
  EXPECT_TRUE(end_of_step(check, 1, {kNan}).finite);
  const auto late = end_of_step(check, 2, {kFine});
  EXPECT_EQ(late.step, 1);
  EXPECT_FALSE(late.finite);
  EXPECT_TRUE(end_of_step(check, 3, {kFine}).finite);
}

// A program that has caught the error of a loss and continues hears of it once.
TEST(LossCheck, LastResultIsReportedOnce) {
  LossCheck check(/*late=*/true);
  end_of_step(check, 1, {kNan});
  EXPECT_FALSE(check.last().finite);
  EXPECT_TRUE(check.last().finite);
  EXPECT_EQ(check.last().step, 1);
  EXPECT_TRUE(end_of_step(check, 2, {kFine}).finite);
}

// As after an exception in a forward pass.
TEST(LossCheck, LossOfAStepThatWasNotEndedIsForgotten) {
  LossCheck check(/*late=*/false);
  check.begin_step();
  check.add(test::on_test_device(torch::tensor(kNan)));
  EXPECT_TRUE(end_of_step(check, 1, {kFine}).finite);
}

}  // namespace
}  // namespace ddp
