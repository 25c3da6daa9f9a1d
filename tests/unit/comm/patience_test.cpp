// Waits on a clock of the test's own.
#include "ddp_runtime/comm/patience.h"

#include <gtest/gtest.h>

#include <vector>

#include "ddp_runtime/comm/errors.h"

namespace ddp::comm {
namespace {

using namespace std::chrono_literals;

TEST(RunningClock, OfALongGapOnlyTheLongestThatIsUsualCounts) {
  const RunningClock::TimePoint start{};
  RunningClock clock(1s, start);
  EXPECT_EQ(clock.look(start + 500ms) - start, 500ms);
  EXPECT_EQ(clock.look(start + 1500ms) - start, 1500ms);
  EXPECT_EQ(clock.look(start + 2h) - start, 2500ms) << "the job was suspended";
  EXPECT_EQ(clock.look(start + 2h + 100ms) - start, 2600ms);
}

// A wait of a rank: what it says, and when it gives up.
class Wait {
 public:
  Wait() {
    failures.on_suspicion([this](const std::string& text) { suspicions.push_back(text); });
    patience.begin(now);
  }
  // Checks every 100 ms for so long. False: gave up.
  bool wait(std::chrono::milliseconds time) {
    for (const auto until = now + time; now < until; now += 100ms) {
      try {
        patience.check([](auto waited) { return std::to_string(waited / 1ms); }, now);
      } catch (const BrokenCollective&) {
        return false;
      }
    }
    return true;
  }
  void stand_still(std::chrono::milliseconds time) { now += time; }

  FailureState failures;
  std::vector<std::string> suspicions;
  Patience patience{failures, 20s, 5s};
  Patience::TimePoint now = std::chrono::steady_clock::now();
};

TEST(Patience, SuspectsAgainAndAgainAndGivesUp) {
  Wait rank;
  EXPECT_TRUE(rank.wait(5s));
  EXPECT_FALSE(rank.failures.stalled());
  EXPECT_TRUE(rank.wait(14s));
  EXPECT_TRUE(rank.failures.stalled());
  EXPECT_EQ(rank.suspicions.size(), 3U);
  EXPECT_FALSE(rank.wait(2s));
}

TEST(Patience, ASuspendedJobGoesOnWhenItIsResumed) {
  Wait rank;
  EXPECT_TRUE(rank.wait(2s));
  rank.stand_still(2h);
  EXPECT_TRUE(rank.wait(1s));
  EXPECT_TRUE(rank.suspicions.empty());
  EXPECT_TRUE(rank.wait(15s));
}

TEST(Patience, WhatMovesIsNoStallAndWorkIsNoWait) {
  Wait rank;
  for (int step = 0; step < 10; ++step) {
    EXPECT_TRUE(rank.wait(1s));
    rank.patience.moved();
    rank.stand_still(900ms);  // adding up what came
  }
  EXPECT_TRUE(rank.suspicions.empty());
  EXPECT_TRUE(rank.wait(6s));
  EXPECT_TRUE(rank.failures.stalled());
  rank.patience.moved();
  EXPECT_FALSE(rank.failures.stalled());
  EXPECT_FALSE(rank.wait(6s)) << "all waits of an operation together have a limit";
}

TEST(Patience, AStallEndsWithTheOperation) {
  Wait rank;
  EXPECT_TRUE(rank.wait(6s));
  EXPECT_TRUE(rank.failures.stalled());
  rank.patience.begin(rank.now);
  EXPECT_FALSE(rank.failures.stalled());
  EXPECT_TRUE(rank.wait(19s)) << "each operation has the whole time";
}

TEST(Patience, AFailureOfAnyRankEndsTheWait) {
  Wait rank;
  rank.failures.fail({.rank = 3, .text = "no more coffee"});
  EXPECT_THROW(rank.wait(1s), PeerFailure);
}

}  // namespace
}  // namespace ddp::comm
