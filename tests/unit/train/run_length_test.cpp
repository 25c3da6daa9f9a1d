// SPDX-License-Identifier: Apache-2.0
// The epochs and steps of a run, by hand, and at the ends of the range of numbers.
#include "ddp_runtime/train/run_length.h"

#include <gtest/gtest.h>

#include <limits>
#include <utility>

namespace ddp::train {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
constexpr EpochSize kTen{105, 10};  // 10 steps, and 5 samples that fill none

struct LengthCase {
  const char* what;
  RequestedLength requested;
  EpochSize size;
  Reached reached;
  std::int64_t epochs;
  std::int64_t steps;
};

TEST(RunLength, FollowsTheTable) {
  const LengthCase cases[] = {
      {"nothing requested", {0, 0}, kTen, {}, 1, 10},
      {"epochs", {3, 0}, kTen, {}, 3, 30},
      {"steps that fill their epochs", {0, 20}, kTen, {}, 2, 20},
      {"steps that end within an epoch", {0, 21}, kTen, {}, 3, 21},
      {"the steps end first", {3, 25}, kTen, {}, 3, 25},
      {"the epochs end first", {2, 25}, kTen, {}, 2, 20},
      {"resumed within an epoch", {0, 21}, kTen, {1, 40, 14}, 3, 21},
      {"resumed with another global batch", {2, 0}, {105, 20}, {1, 40, 14}, 2, 17},
      {"resumed with less data", {2, 0}, {35, 10}, {0, 40, 4}, 2, 7},
      {"already at the requested step", {0, 20}, kTen, {2, 0, 20}, 3, 20},
      {"already beyond the requested epochs", {2, 0}, kTen, {3, 0, 30}, 2, 30},
      {"the most steps", {0, kMost}, kTen, {}, kMost / 10 + 1, kMost},
      {"the most steps, one per epoch", {0, kMost}, {7, 7}, {}, kMost, kMost},
      {"the most steps, resumed", {0, kMost}, {7, 7}, {5, 0, 5}, kMost, kMost},
      {"the most epochs", {kMost, 0}, kTen, {}, kMost, kMost},
      {"the most of both", {kMost, kMost}, {kMost, 1}, {0, 1, 1}, kMost, kMost},
  };
  for (const auto& c : cases) {
    const auto epochs = epochs_of_run(c.requested, c.size, c.reached);
    EXPECT_EQ(epochs, c.epochs) << c.what;
    EXPECT_EQ(planned_steps({epochs, c.requested.steps}, c.size, c.reached), c.steps) << c.what;
  }
}

TEST(ScheduledStep, CountsSamplesInStepsOfThisBatch) {
  const auto scheduled = [](RequestedLength requested, std::int64_t global_batch, Reached reached) {
    const auto [done, total] = scheduled_step(requested, {1618, global_batch}, reached);
    return std::pair(done, total);
  };
  // 8 epochs of 50 steps with 32 samples, of 25 with 64, of 100 with 16.
  EXPECT_EQ(scheduled({8, 0}, 32, {4, 0, 200}), std::pair(200L, 400L));
  EXPECT_EQ(scheduled({8, 0}, 64, {4, 0, 200}), std::pair(100L, 200L));
  EXPECT_EQ(scheduled({8, 0}, 16, {4, 320, 210}), std::pair(424L, 808L));
  EXPECT_EQ(scheduled({8, 0}, 64, {1, 26 * 32, 76}), std::pair(38L, 200L));
  EXPECT_EQ(scheduled({8, 0}, 64, {1, 5000, 76}), std::pair(50L, 200L)) << "less data than before";
  EXPECT_EQ(scheduled({8, 300}, 32, {4, 0, 200}), std::pair(200L, 300L)) << "the steps end it";
  EXPECT_EQ(scheduled({8, 9000}, 64, {4, 0, 200}), std::pair(100L, 200L));
}

}  // namespace
}  // namespace ddp::train
