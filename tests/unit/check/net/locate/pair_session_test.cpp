// SPDX-License-Identifier: Apache-2.0
// Tests the sequence of measurements: the rounds, the retested nodes, their partners, and the
// number of tries.
#include "ddp_runtime/check/net/locate/pair_session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "ddp_runtime/check/findings/pattern.h"

namespace ddp::check {
namespace {

using Speed = std::function<double(const Pair& pair)>;

struct Course {
  int rounds = 0;
  std::vector<SessionStep> retests;
  std::vector<Retest> suspects;
};

bool any_node(int /*node*/) {
  return true;
}

Course run(SessionOptions options, const Speed& speed,
           const PairSession::CanTakePart& can = any_node) {
  PairSession session(std::move(options));
  Course course;
  while (const auto step = session.next(can)) {
    std::vector<PairResult> results;
    for (const Pair& pair : step->pairs) {
      if (!can(pair.a) || !can(pair.b)) continue;
      PairResult result;
      result.pair = pair;
      result.a_to_b = result.b_to_a = speed(pair);
      results.push_back(result);
    }
    session.take(results);
    if (step->kind == SessionStep::Kind::round) {
      ++course.rounds;
    } else {
      course.retests.push_back(*step);
    }
  }
  course.suspects = session.retests();
  return course;
}

Speed slow_nodes_at(const std::set<int>& nodes, double speed) {
  return [nodes, speed](const Pair& pair) {
    return nodes.contains(pair.a) || nodes.contains(pair.b) ? speed : 100.0;
  };
}

const Retest* retest_of(const Course& course, int node) {
  const auto found = std::find_if(course.suspects.begin(), course.suspects.end(),
                                  [node](const Retest& retest) { return retest.node == node; });
  return found == course.suspects.end() ? nullptr : &*found;
}

TEST(PairSession, HealthyClusterIsMeasuredOnce) {
  const Course few = run({.nodes = 6}, slow_nodes_at({}, 1));
  EXPECT_EQ(few.rounds, 5);
  EXPECT_TRUE(few.retests.empty());
  EXPECT_EQ(run({.nodes = 50}, slow_nodes_at({}, 1)).rounds, kSampledRounds);
  EXPECT_EQ(run({.nodes = 50, .rounds = 7}, slow_nodes_at({}, 1)).rounds, 7);
}

TEST(PairSession, SuspectIsRetestedAFixedNumberOfTimesWithDifferentPartners) {
  const Course course = run({.nodes = 8}, slow_nodes_at({2}, 70));
  ASSERT_EQ(course.suspects.size(), 1U);
  EXPECT_EQ(course.suspects[0].tries.size(), static_cast<std::size_t>(kMinTries));
  EXPECT_EQ(outcome(course.suspects[0], {}), Outcome::slow);
  std::set<Pair> met;
  for (const auto& step : course.retests) {
    EXPECT_EQ(step.suspects, 1U);
    ASSERT_GE(step.pairs.size(), 2U) << "a reference pair runs at the same time as the suspect";
    EXPECT_TRUE(step.pairs[0].a == 2 || step.pairs[0].b == 2);
    met.insert(step.pairs[0]);
    for (std::size_t i = 1; i < step.pairs.size(); ++i) {
      EXPECT_NE(step.pairs[i].a, 2);
      EXPECT_NE(step.pairs[i].b, 2);
    }
  }
  EXPECT_GE(met.size(), 3U);
}

TEST(PairSession, PairsOfOneStepAreDisjoint) {
  const Course course = run({.nodes = 40}, slow_nodes_at({1, 2, 3, 4, 5, 6, 7}, 60));
  for (const auto& step : course.retests) {
    std::set<int> nodes;
    for (const auto& [a, b] : step.pairs) {
      EXPECT_TRUE(nodes.insert(a).second);
      EXPECT_TRUE(nodes.insert(b).second);
    }
  }
  for (int node = 1; node <= 7; ++node) ASSERT_NE(retest_of(course, node), nullptr);
}

// The time must not grow with the number of bad nodes.
TEST(PairSession, MeasuresManySuspectsAtTheSameTime) {
  std::set<int> bad;
  while (bad.size() < 100) bad.insert(static_cast<int>(bad.size()) * 5);
  const Course course = run({.nodes = 500}, slow_nodes_at(bad, 70));
  EXPECT_GE(course.suspects.size(), 100U);
  EXPECT_LE(course.retests.size(), 90U);
  // Even a small cluster measures more than two suspects at once, while its other half also
  // exchanges data.
  const Course small = run({.nodes = 16}, slow_nodes_at({2, 7, 11}, 70));
  EXPECT_EQ(small.retests.size(), static_cast<std::size_t>(kMinTries));
  for (const int node : bad) {
    ASSERT_NE(retest_of(course, node), nullptr);
    EXPECT_EQ(outcome(*retest_of(course, node), {}), Outcome::slow);
  }
}

// In a single round, each bad node makes a good one look as slow as itself.
TEST(PairSession, GoodNodesThatMetABadOneAreCleared) {
  for (const int count : {1, 4, 16}) {
    std::set<int> bad;
    while (static_cast<int>(bad.size()) < count) bad.insert(static_cast<int>(bad.size()) * 4);
    const Course course = run({.nodes = 64, .rounds = 1}, slow_nodes_at(bad, 70));
    int cleared = 0;
    for (const Retest& retest : course.suspects) {
      ASSERT_TRUE(retest.node);
      const bool is_bad = bad.contains(*retest.node);
      EXPECT_EQ(outcome(retest, {}), is_bad ? Outcome::slow : Outcome::cleared) << *retest.node;
      cleared += is_bad ? 0 : 1;
    }
    EXPECT_GT(cleared, 0);
    for (const auto& step : course.retests) {
      for (const auto& [a, b] : step.pairs) {
        EXPECT_FALSE(bad.contains(a) && bad.contains(b)) << a << " with " << b;
      }
    }
  }
}

// With three good nodes and one bad node, one good pair is free for the reference. With two bad
// nodes, none is free.
TEST(PairSession, ReferenceComesLaterIfNoGoodPairIsFree) {
  for (const auto& [nodes, bad] :
       {std::pair{4, std::set<int>{1}}, std::pair{4, std::set<int>{0, 3}},
        std::pair{5, std::set<int>{0, 3}}}) {
    const Course course = run({.nodes = nodes}, slow_nodes_at(bad, 50));
    for (const int node : bad) {
      ASSERT_NE(retest_of(course, node), nullptr);
      EXPECT_EQ(outcome(*retest_of(course, node), {}), Outcome::slow);
      EXPECT_EQ(retest_of(course, node)->tries.size(), static_cast<std::size_t>(kMinTries));
    }
  }
}

TEST(PairSession, EndsOfABadLinkAreMeasuredToo) {
  const Course course = run({.nodes = 8}, [](const Pair& pair) {
    return pair == Pair{1, 5} ? 40.0 : 100.0;
  });
  ASSERT_EQ(course.suspects.size(), 3U);
  EXPECT_EQ(course.suspects[0].link, (Pair{1, 5}));
  EXPECT_EQ(outcome(course.suspects[0], {}), Outcome::slow);
  for (const int node : {1, 5}) {
    ASSERT_NE(retest_of(course, node), nullptr);
    EXPECT_EQ(outcome(*retest_of(course, node), {}), Outcome::cleared);
  }
}

TEST(PairSession, HopelessSuspectsShortenTheRetest) {
  const Course course = run({.nodes = 8}, slow_nodes_at({2}, 5));
  ASSERT_EQ(course.suspects.size(), 1U);
  EXPECT_LT(course.suspects[0].tries.size(), static_cast<std::size_t>(kMinTries));
  EXPECT_EQ(outcome(course.suspects[0], {}), Outcome::slow);
}

TEST(PairSession, LostNodesAreOmittedAndTheSessionFinishes) {
  const auto without = [](std::set<int> gone) {
    return [gone](int node) { return !gone.contains(node); };
  };
  const Course course = run({.nodes = 6}, slow_nodes_at({2}, 50), without({4}));
  ASSERT_NE(retest_of(course, 2), nullptr);
  EXPECT_EQ(outcome(*retest_of(course, 2), {}), Outcome::slow);
  for (const auto& step : course.retests) {
    for (const auto& [a, b] : step.pairs) EXPECT_TRUE(a != 4 && b != 4);
  }
  EXPECT_TRUE(run({.nodes = 6}, slow_nodes_at({}, 1), without({0, 1, 2, 3, 4, 5})).retests.empty());
}

// The noise hides most speed differences, but not lost packets.
TEST(PairSession, NoiseDoesNotShortenRetestsOfLoss) {
  for (const bool lossy : {false, true}) {
    std::uint64_t drawn = 0;
    PairSession session({.nodes = 16});
    std::size_t tries = 0;
    while (const auto step = session.next(any_node)) {
      std::vector<PairResult> results;
      for (const Pair& pair : step->pairs) {
        PairResult result;
        result.pair = pair;
        result.a_to_b = 1 + static_cast<double>(pattern_word(5, drawn++) % 1000);
        result.b_to_a = 1 + static_cast<double>(pattern_word(5, drawn++) % 1000);
        if (lossy) result.lost = 0.05;
        results.push_back(result);
      }
      session.take(results);
    }
    for (const Retest& retest : session.retests()) tries = std::max(tries, retest.tries.size());
    EXPECT_EQ(tries, static_cast<std::size_t>(lossy ? kMinTries : kTriesInVain));
  }
}

// The noise hides a CRITICAL node at first, but not after a few more rounds.
TEST(PairSession, NoisyRoundsAreFollowedByMoreRounds) {
  std::uint64_t drawn = 0;
  const auto noisy = [&drawn](const Pair&) {
    double sum =
        0;  // sum of twelve uniform numbers: nearly normal, with a standard deviation of one
    for (int i = 0; i < 12; ++i) {
      sum += static_cast<double>(pattern_word(3, drawn++) >> 11U) * 0x1.0p-53;
    }
    return 100 * (1 + 0.085 * (sum - 6));
  };
  const Course course = run({.nodes = 60}, noisy);
  EXPECT_GT(course.rounds, kSampledRounds);
  EXPECT_LE(course.rounds, kSampledRounds + 3);
  EXPECT_EQ(run({.nodes = 60, .rounds = 3}, noisy).rounds, 3);  // as the user requested
}

// Other load on the CPUs favors one pair for seconds, during which good pairs look steady.
TEST(PairSession, SteadyRetestsAfterNoisyRoundsConfirmNoNode) {
  constexpr double kRoundNoise = 0.2;
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0, kRoundNoise);
  std::set<Pair> seen;
  const Course course = run({.nodes = 8}, [&](const Pair& pair) {
    const bool suspect = pair.a == 2 || pair.b == 2;
    const bool in_round = seen.insert(pair).second;
    if (in_round) return (suspect ? 40 : 100) * std::exp(noise(random));
    return suspect ? 80.0 : 100.0;
  });
  const Retest* retest = retest_of(course, 2);
  ASSERT_NE(retest, nullptr);
  ASSERT_EQ(retest->tries.size(), static_cast<std::size_t>(kMinTries));
  EXPECT_GT(retest->noise, kRoundNoise / 2);
  EXPECT_EQ(outcome(*retest, {}), Outcome::noisy);
}

TEST(PairSession, ClassesAreMeasuredSeparatelyAndOnceTogether) {
  Classes classes(40, 1);
  for (int node = 0; node < 10; ++node) classes[static_cast<std::size_t>(node * 4)] = 0;
  const auto rounds = plan_class_rounds(40, classes, 0, 3);
  ASSERT_EQ(rounds.size(), static_cast<std::size_t>(kSampledRounds) + 1);
  for (std::size_t r = 0; r + 1 < rounds.size(); ++r) {
    std::set<int> seen;
    for (const auto& [a, b] : rounds[r]) {
      EXPECT_EQ(class_of(classes, a), class_of(classes, b));
      EXPECT_TRUE(seen.insert(a).second && seen.insert(b).second);
    }
    EXPECT_EQ(seen.size(), 40U);
  }
  EXPECT_TRUE(std::any_of(rounds.back().begin(), rounds.back().end(), [&](const Pair& pair) {
    return class_of(classes, pair.a) != class_of(classes, pair.b);
  }));
}

}  // namespace
}  // namespace ddp::check
