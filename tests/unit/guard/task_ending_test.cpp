// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/task_ending.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

namespace ddp::guard {
namespace {

using std::chrono::seconds;

constexpr int kBySigkill = SIGKILL;
const int kExit5 = W_EXITCODE(5, 0);

class TaskEndingTest : public testing::Test {
 protected:
  int signal_after(seconds since_end, bool stands_still = false) {
    return ending.next_signal(StepEnd{end_at, 3}, end_at + since_end, stands_still);
  }
  const Clock::time_point end_at = Clock::now();
  TaskEnding ending;
};

TEST_F(TaskEndingTest, LeavesATaskAloneWhoseStepContinues) {
  EXPECT_EQ(ending.next_signal(std::nullopt, end_at, true), 0);
  EXPECT_EQ(signal_after(seconds(-1), true), 0) << "it ends later";
  EXPECT_FALSE(ending.has_told());
  EXPECT_EQ(ending.status_for(kExit5), kExit5);
}

TEST_F(TaskEndingTest, AsksAndForcesOnce) {
  EXPECT_EQ(signal_after(seconds(0)), SIGTERM);
  for (int i = 1; i < 30; ++i) EXPECT_EQ(signal_after(seconds(i)), 0) << "it saves its state";
  EXPECT_EQ(signal_after(seconds(30)), SIGKILL);
  EXPECT_EQ(signal_after(seconds(60)), 0);
}

TEST_F(TaskEndingTest, DoesNotCountTimeInWhichTheStepIsSuspended) {
  EXPECT_EQ(signal_after(seconds(0)), SIGTERM);
  EXPECT_EQ(signal_after(seconds(3600)), 0);
  for (int i = 1; i < 29; ++i) EXPECT_EQ(signal_after(seconds(3600 + i)), 0);
  EXPECT_EQ(signal_after(seconds(3629)), SIGKILL);
}

TEST_F(TaskEndingTest, ForcesATaskThatDoesNothingAtOnce) {
  EXPECT_EQ(signal_after(seconds(0), true), SIGTERM);
  EXPECT_EQ(signal_after(seconds(1), true), SIGKILL);
}

TEST_F(TaskEndingTest, EndsWithTheCodeOfTheRankThatFailedUnlessTheTaskEndedWell) {
  signal_after(seconds(0));
  EXPECT_EQ(ending.status_for(kExit5), W_EXITCODE(3, 0));
  EXPECT_EQ(ending.status_for(kBySigkill), W_EXITCODE(3, 0));
  EXPECT_EQ(ending.status_for(0), 0);
}

TEST_F(TaskEndingTest, KeepsTheStatusOfAStepThatEndsForAnotherReason) {
  EXPECT_EQ(ending.next_signal(StepEnd{end_at}, end_at, false), SIGTERM);
  EXPECT_EQ(ending.status_for(kBySigkill), kBySigkill);
  EXPECT_EQ(ending.status_for(kExit5), kExit5);
}

}  // namespace
}  // namespace ddp::guard
