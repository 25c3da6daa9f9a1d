// SPDX-License-Identifier: Apache-2.0
// The agreement of ranks between two steps, and stopping before the time limit.
#include "ddp_runtime/train/ranks/step_boundary.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>

#include "tests/unit/test_device.h"

namespace ddp::train {
namespace {

TEST(LeadTime, CoversAStepThatHasJustBegunAndASlowSave) {
  EXPECT_GT(lead_seconds(3, 20), 3 + 20);
  EXPECT_GT(lead_seconds(3, 40) - lead_seconds(3, 20), 20);
  EXPECT_GT(lead_seconds(0, 0), 0);
}

// The handlers of a StopSignals go with it.
TEST(StopSignals, DoNothingToAProgramWhoseWorkIsDone) {
  const auto end = [] {
    for (const int number : {SIGTERM, SIGUSR1, SIGUSR2}) signal(number, SIG_DFL);
    StopSignals::forget();
    {
      const StopSignals signals;
      ignore_stop_signals();
    }
    for (const int number : {SIGTERM, SIGUSR1, SIGUSR2}) raise(number);
    std::_Exit(0);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(0), "");
}

TEST(StepBoundary, AllRanksSeeTheCopiesOfEveryRank) {
  test::run_ranks(3, [](comm::Group& group) {
    StepBoundary boundary(group);
    boundary.begin(false, 100, false, {group.rank() == 2, false});
    auto agreed = boundary.end();
    EXPECT_TRUE(agreed.copying);
    EXPECT_FALSE(agreed.copy || agreed.writing || agreed.save);
    boundary.begin(false, 100, false, {false, group.rank() == 0});
    agreed = boundary.end();
    EXPECT_TRUE(agreed.copy);
    EXPECT_FALSE(agreed.copying || agreed.writing || agreed.save);
  });
}

TEST(StepBoundary, AllRanksSeeTheStateOfEveryRank) {
  test::run_ranks(3, [](comm::Group& group) {
    StepBoundary boundary(group);
    const auto agree = [&](bool writing) {
      boundary.begin(writing, 100);
      return boundary.end();
    };
    EXPECT_FALSE(agree(false).writing);
    EXPECT_TRUE(agree(group.rank() == 2).writing);
    EXPECT_EQ(agree(false).stop, "");
    EXPECT_FALSE(agree(false).save);
    boundary.begin(false, 100, group.rank() == 0);
    EXPECT_TRUE(boundary.end().save) << "one rank's clock is enough";
    EXPECT_FALSE(agree(true).save) << "a request counts for one step";
    const auto now = std::chrono::steady_clock::now();
    if (group.rank() == 0) boundary.set_deadline(now + std::chrono::hours(1));
    EXPECT_EQ(agree(false).stop, "");
    if (group.rank() == 0) boundary.set_deadline(now + std::chrono::seconds(50));
    EXPECT_EQ(agree(false).stop, "the job's time is nearly up");
    if (group.rank() == 1) raise(SIGUSR2);
    // Threads share one process and its signals; the other ranks see the signal now or a step
    // later.
    EXPECT_EQ((agree(false), agree(false)).stop, "SIGUSR2 was received");
  });
  EXPECT_EQ(StopSignals::received(), SIGUSR2);
  StopSignals::forget();
  EXPECT_EQ(StopSignals::received(), 0) << "other tests in this process must not stop";
}

}  // namespace
}  // namespace ddp::train
