// SPDX-License-Identifier: Apache-2.0
// Tests the tournament: all nodes meet each other exactly once, and have at most one partner per
// round.
#include "ddp_runtime/check/net/locate/pair_schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace ddp::check {
namespace {

bool disjoint(const Round& round) {
  std::set<int> seen;
  for (const auto& [a, b] : round) {
    if (!seen.insert(a).second || !seen.insert(b).second) return false;
  }
  return true;
}

class Tournament : public testing::TestWithParam<int> {};

TEST_P(Tournament, EveryPairMeetsOnceInAsFewRoundsAsPossible) {
  const int nodes = GetParam();
  const auto rounds = all_rounds(nodes);
  EXPECT_EQ(rounds.size(), static_cast<std::size_t>(nodes - 1 + nodes % 2));
  std::map<Pair, int> meetings;
  for (const auto& round : rounds) {
    EXPECT_TRUE(disjoint(round));
    EXPECT_EQ(round.size(), static_cast<std::size_t>(nodes / 2));
    for (const auto& pair : round) {
      EXPECT_LT(pair.a, pair.b);
      EXPECT_LT(pair.b, nodes);
      ++meetings[pair];
    }
  }
  EXPECT_EQ(meetings.size(), static_cast<std::size_t>(nodes * (nodes - 1) / 2));
  for (const auto& [pair, count] : meetings) EXPECT_EQ(count, 1);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Tournament, testing::Values(2, 3, 4, 5, 8, 9, 16, 33));

TEST(PairSchedule, OneNodeHasNoRounds) {
  EXPECT_TRUE(all_rounds(1).empty());
  EXPECT_TRUE(all_rounds(0).empty());
  EXPECT_TRUE(plan_rounds(1, 1).empty());
}

// A tool that pairs only neighbors never checks the last of an odd number of nodes.
TEST(PairSchedule, NoNodeIsLeftOutOfASample) {
  for (const int nodes : {9, 10, 63, 64, 257}) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      const auto rounds = random_rounds(nodes, 3, seed);
      ASSERT_EQ(rounds.size(), 3U);
      std::map<int, std::set<int>> partners;
      for (const auto& round : rounds) {
        EXPECT_TRUE(disjoint(round));
        for (const auto& [a, b] : round) {
          partners[a].insert(b);
          partners[b].insert(a);
        }
      }
      ASSERT_EQ(partners.size(), static_cast<std::size_t>(nodes));
      for (const auto& [node, others] : partners) {
        EXPECT_GE(others.size(), nodes % 2 == 0 ? 3U : 2U) << "node " << node;
      }
    }
  }
}

// One node of another class than the rest, in a single round, or both.
TEST(PairSchedule, NodeThatRestsInAllRoundsHasOneOfItsOwn) {
  std::vector<int> one_of_a_kind(9, 0);
  one_of_a_kind.back() = 1;
  for (const auto& classes : {std::vector<int>{}, one_of_a_kind}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      for (const int rounds : {0, 1}) {
        std::set<int> paired;
        for (const auto& round : plan_class_rounds(9, classes, rounds, seed)) {
          EXPECT_TRUE(disjoint(round));
          for (const auto& [a, b] : round) paired.insert({a, b});
        }
        EXPECT_EQ(paired.size(), 9U);
      }
    }
  }
}

TEST(PairSchedule, SamplesDependOnTheSeedOnly) {
  EXPECT_EQ(random_rounds(64, 3, 7), random_rounds(64, 3, 7));
  EXPECT_NE(random_rounds(64, 3, 7), random_rounds(64, 3, 8));
}

TEST(PairSchedule, FewNodesMeetAllOthersAndManyMeetSome) {
  EXPECT_EQ(plan_rounds(8, 1).size(), 7U);
  EXPECT_EQ(plan_rounds(9, 1).size(), 3U);
  EXPECT_EQ(random_rounds(4, 10, 1).size(), 3U);  // only three rounds exist
}

// A bad link among many nodes is found only by jobs that measure it, so different jobs must measure
// different pairs.
TEST(PairSchedule, EachJobMeasuresDifferentPairs) {
  std::set<Pair> met;
  for (const char* identity : {"1.0", "1.1", "2.0", "30.0", "31.0"}) {
    EXPECT_EQ(seed_for(identity), seed_for(identity));
    EXPECT_GE(seed_for(identity), 1U);
    EXPECT_LT(seed_for(identity), 1'000'000'000U);
    for (const auto& round : plan_rounds(64, seed_for(identity))) {
      met.insert(round.begin(), round.end());
    }
  }
  EXPECT_GT(met.size(), 400U);  // of 480 pairs, some of which repeat
}

}  // namespace
}  // namespace ddp::check
