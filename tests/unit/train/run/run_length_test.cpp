// SPDX-License-Identifier: Apache-2.0
// The epochs and steps of a run, by hand, and at the ends of the range of numbers.
#include "ddp_runtime/train/run/run_length.h"

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

TEST(ScheduledStep, CountsSamplesInStepsOfTheFirstBatch) {
  const auto scheduled = [](RequestedLength requested, std::int64_t first_batch, Reached reached) {
    const auto [done, total] = scheduled_step(requested, {1618, first_batch}, reached);
    return std::pair(done, total);
  };
  // 8 epochs of 50 steps with 32 samples, of 25 with 64.
  EXPECT_EQ(scheduled({8, 0}, 32, {4, 0, 200}), std::pair(200.0, 400L));
  EXPECT_EQ(scheduled({8, 0}, 64, {4, 0, 200}), std::pair(100.0, 200L));
  EXPECT_EQ(scheduled({8, 0}, 32, {4, 48, 230}), std::pair(201.5, 400L)) << "it had another batch";
  EXPECT_EQ(scheduled({8, 0}, 64, {1, 5000, 76}), std::pair(50.0, 200L)) << "less data than before";
  EXPECT_EQ(scheduled({8, 0}, 5000, {1, 64, 26}), std::pair(0.0, 0L)) << "far less data";
  EXPECT_EQ(scheduled({0, 0}, 32, {0, 32, 1}), std::pair(1.0, 50L));
}

TEST(ScheduledStep, CountsStepsIfTheyEndTheRun) {
  const auto scheduled = [](RequestedLength requested, std::int64_t first_batch) {
    const auto [done, total] = scheduled_step(requested, {1618, first_batch}, {4, 0, 230});
    return std::pair(done, total);
  };
  EXPECT_EQ(scheduled({8, 300}, 32), std::pair(230.0, 300L));
  EXPECT_EQ(scheduled({8, 9000}, 32), std::pair(200.0, 400L));
  EXPECT_EQ(scheduled({0, 9000}, 32), std::pair(230.0, 9000L));
  EXPECT_EQ(scheduled({8, 300}, 64), std::pair(100.0, 200L));
}

TEST(ScheduledStep, TellsThatTheOtherLimitEndsTheRunNow) {
  const auto told = [](RequestedLength requested, std::int64_t first_batch, std::int64_t batch) {
    return why_schedule_is_cut(requested, {1618, first_batch}, {1618, batch}, {4, 0, 200});
  };
  EXPECT_EQ(told({8, 350}, 32, 64),
            "schedule: with steps of 64 samples, --epochs ends the run, at step 300; the learning "
            "rate was planned to the end of --steps, for steps of 32, and ends above 0");
  EXPECT_EQ(told({8, 500}, 32, 16),
            "schedule: with steps of 16 samples, --steps ends the run, at step 500; the learning "
            "rate was planned to the end of --epochs, for steps of 32, and ends above 0");
  for (const RequestedLength same : {RequestedLength{8, 0}, {0, 350}, {8, 250}, {8, 9000}}) {
    EXPECT_EQ(told(same, 32, 64), "");
  }
  EXPECT_EQ(told({8, 350}, 32, 32), "");
}

}  // namespace
}  // namespace ddp::train
