// SPDX-License-Identifier: Apache-2.0
// Waits, with a clock that the test controls.
#include "ddp_runtime/comm/failure/state/wait_timer.h"

#include <gtest/gtest.h>

#include <vector>

#include "ddp_runtime/comm/group/peer_failure.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;

TEST(RunningClock, LongGapCountsAsTheLongestAllowed) {
  const RunningClock::TimePoint start{};
  RunningClock clock(1s, start);
  EXPECT_EQ(clock.look(start + 500ms) - start, 500ms);
  EXPECT_EQ(clock.look(start + 1500ms) - start, 1500ms);
  EXPECT_EQ(clock.look(start + 2h) - start, 2500ms) << "the job was suspended";
  EXPECT_EQ(clock.look(start + 2h + 100ms) - start, 2600ms);
}

// A rank's wait: its reports, and whether it has failed.
class Wait {
 public:
  Wait() {
    failures.on_slow_wait([this](const std::string& text) { suspicions.push_back(text); });
    timer.begin(now);
  }
  // Checks every 100 ms until `time` has passed. Returns false if the wait failed.
  bool wait(std::chrono::milliseconds time) {
    for (const auto until = now + time; now < until; now += 100ms) {
      try {
        timer.check([](auto waited) { return std::to_string(waited / 1ms); }, now);
      } catch (const BrokenCollective&) {
        return false;
      }
    }
    return true;
  }
  void stand_still(std::chrono::milliseconds time) { now += time; }

  FailureState failures;
  std::vector<std::string> suspicions;
  WaitTimer timer{failures, 20s, 5s};
  WaitTimer::TimePoint now = std::chrono::steady_clock::now();
};

TEST(WaitTimer, ReportsRepeatedlyAndThenFails) {
  Wait rank;
  EXPECT_TRUE(rank.wait(5s));
  EXPECT_FALSE(rank.failures.stalled());
  EXPECT_TRUE(rank.wait(14s));
  EXPECT_TRUE(rank.failures.stalled());
  EXPECT_EQ(rank.suspicions.size(), 3U);
  EXPECT_FALSE(rank.wait(2s));
}

TEST(WaitTimer, SuspensionDoesNotCountAsWaiting) {
  Wait rank;
  EXPECT_TRUE(rank.wait(2s));
  rank.stand_still(2h);
  EXPECT_TRUE(rank.wait(1s));
  EXPECT_TRUE(rank.suspicions.empty());
  EXPECT_TRUE(rank.wait(15s));
}

TEST(WaitTimer, ProgressIsNotAStallAndWorkIsNotAWait) {
  Wait rank;
  for (int step = 0; step < 10; ++step) {
    EXPECT_TRUE(rank.wait(1s));
    rank.timer.moved();
    rank.stand_still(900ms);  // adding received data
  }
  EXPECT_TRUE(rank.suspicions.empty());
  EXPECT_TRUE(rank.wait(6s));
  EXPECT_TRUE(rank.failures.stalled());
  rank.timer.moved();
  EXPECT_FALSE(rank.failures.stalled());
  EXPECT_FALSE(rank.wait(6s)) << "all waits of an operation share one limit";
}

TEST(WaitTimer, StallEndsWithTheOperation) {
  Wait rank;
  EXPECT_TRUE(rank.wait(6s));
  EXPECT_TRUE(rank.failures.stalled());
  rank.timer.begin(rank.now);
  EXPECT_FALSE(rank.failures.stalled());
  EXPECT_TRUE(rank.wait(19s)) << "each operation has the full time";
}

TEST(WaitTimer, FailureOfAnyRankEndsTheWait) {
  Wait rank;
  rank.failures.fail({.rank = 3, .text = "no more coffee"});
  EXPECT_THROW(rank.wait(1s), PeerFailure);
}

}  // namespace
}  // namespace ddp::comm
