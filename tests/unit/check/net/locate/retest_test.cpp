// SPDX-License-Identifier: Apache-2.0
// Tests the outcome of a suspect's retest: slow, cleared, undecided or unsteady.
#include "ddp_runtime/check/net/locate/retest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

namespace ddp::check {
namespace {

// A retest whose tries have these ratios to good pairs measured at the same time, in known noise.
Retest tried(const std::vector<double>& ratios, double noise = 0.02, double beside = 100) {
  Retest retest;
  retest.node = 0;
  for (const double ratio : ratios) {
    retest.tries.push_back({.send = ratio * beside, .receive = ratio * beside, .beside = beside});
  }
  for (int i = 0; i < 36; ++i) retest.reference_ratios.push_back(i % 2 == 0 ? 1.01 : 0.99);
  retest.noise = noise;
  return retest;
}

std::vector<double> equal_tries(int count, double ratio) {
  return std::vector<double>(static_cast<std::size_t>(count), ratio);
}

struct OutcomeCase {
  const char* name;
  std::vector<double> ratios;
  double noise;
  Outcome expected;
  Severity severity;
};

TEST(Retest, OutcomesAreDecidedByTheMedianAndItsError) {
  const std::vector<OutcomeCase> cases{
      {"nothing", {}, 0.02, Outcome::untested, Severity::ok},
      {"as fast as others", equal_tries(9, 1), 0.02, Outcome::cleared, Severity::ok},
      {"slower than wanted", equal_tries(9, 0.85), 0.02, Outcome::slow, Severity::warning},
      {"bad", equal_tries(9, 0.7), 0.02, Outcome::slow, Severity::critical},
      {"bad in noise", equal_tries(9, 0.7), 0.07, Outcome::slow, Severity::critical},
      // Nine measurements of such a network cannot distinguish 0.8 from 0.9.
      {"too much noise", equal_tries(9, 0.8), 0.2, Outcome::undecided, Severity::ok},
      // With more noise, any good node may have this result.
      {"like all nodes in noise", equal_tries(9, 0.8), 0.3, Outcome::noisy, Severity::ok},
      {"far below in noise", equal_tries(9, 0.3), 0.4, Outcome::slow, Severity::critical},
      // A node with occasional double speed is still certain to be fast.
      {"fast and uneven",
       {1.1, 5, 1.3, 2.4, 0.9, 2.5, 7, 3, 4},
       0.3,
       Outcome::cleared,
       Severity::ok},
      // A few tries that agree by chance confirm a slow node only if it is stalled.
      {"few and slow", equal_tries(5, 0.5), 0.2, Outcome::undecided, Severity::ok},
      {"few and stalled", equal_tries(5, 0.3), 0.2, Outcome::slow, Severity::critical},
      {"slow and uneven",
       {0.2, 0.5, 0.13, 0.3, 0.6, 0.25, 0.35, 0.4, 0.3},
       0.3,
       Outcome::slow,
       Severity::critical},
      {"slightly slow in noise", equal_tries(9, 0.89), 0.02, Outcome::cleared, Severity::ok},
      // Taking the best of several tries would clear this node.
      {"one lucky try",
       {0.7, 0.71, 1.0, 0.69, 0.7, 0.72, 0.7, 0.68, 0.7},
       0.02,
       Outcome::slow,
       Severity::critical},
      // One disturbed try does not blame a node.
      {"one unlucky try",
       {1, 1.01, 0.3, 0.99, 1, 1, 1.02, 1, 1},
       0.02,
       Outcome::cleared,
       Severity::ok},
      {"sometimes far below",
       {1, 1.01, 0.3, 0.99, 0.3, 1, 1.02, 0.3, 1},
       0.02,
       Outcome::unsteady,
       Severity::ok}};
  for (const auto& test : cases) {
    const Retest retest = tried(test.ratios, test.noise);
    EXPECT_EQ(outcome(retest, {}), test.expected) << test.name;
    EXPECT_EQ(severity_of(retest, Direction::send, {}), test.severity) << test.name;
  }
}

// A slowdown that affects all nodes at one moment also affects the references of that moment.
TEST(Retest, OnlyReferencesFromTheSameMomentCount) {
  Retest retest = tried(equal_tries(9, 1));
  for (std::size_t i = 0; i < retest.tries.size(); ++i) {
    const double moment = i % 2 == 0 ? 0.3 : 1;
    Try& one = retest.tries[i];
    one.send *= moment;
    one.receive *= moment;
    one.beside *= moment;
  }
  EXPECT_EQ(outcome(retest, {}), Outcome::cleared);
}

// Disturbances that affect good pairs equally often are not a fault of the suspect.
TEST(Retest, DisturbancesOfGoodPairsAreNotUnsteady) {
  Retest retest = tried({1, 1.01, 0.3, 0.99, 0.3, 1, 1.02, 0.3, 1});
  for (std::size_t i = 0; i < retest.reference_ratios.size(); i += 6) {
    retest.reference_ratios[i] = 0.3;
  }
  EXPECT_EQ(outcome(retest, {}), Outcome::cleared);
  EXPECT_EQ(tries_far_below(retest, {}), 3);
}

TEST(Retest, DirectionsAreJudgedSeparately) {
  Retest retest = tried(equal_tries(9, 0.5));
  for (Try& one : retest.tries) one.receive = 100;
  EXPECT_EQ(outcome(retest, {}), Outcome::slow);
  EXPECT_EQ(severity_of(retest, Direction::send, {}), Severity::critical);
  EXPECT_EQ(outcome(retest, Direction::receive, {}), Outcome::cleared);
  Retest second_of_pair;
  second_of_pair.node = 7;
  PairResult result;
  result.pair = {3, 7};
  result.a_to_b = 100;
  result.b_to_a = 50;  // node 7 sends at this speed
  second_of_pair.add(result, 100, 0);
  EXPECT_EQ(second_of_pair.tries[0].send, 50);
  EXPECT_EQ(second_of_pair.tries[0].receive, 100);
}

TEST(Retest, LossyLinkIsNotClearedByLuck) {
  Retest retest = tried(equal_tries(9, 1));
  retest.node.reset();
  retest.lossy = true;
  for (Try& one : retest.tries) one.lost = 0.05;
  retest.tries[1].lost = retest.tries[5].lost = 0;
  EXPECT_TRUE(keeps_losing(retest));
  retest.tries[3].lost = 0.0002;
  EXPECT_FALSE(keeps_losing(retest));
  retest.lossy = false;
  EXPECT_FALSE(keeps_losing(retest));
  EXPECT_FALSE(keeps_losing(Retest{.lossy = true}));
}

TEST(Retest, HopelessSuspectsAreNotMeasuredFurther) {
  EXPECT_FALSE(hopeless(tried(equal_tries(4, 0.1)), {}));
  EXPECT_TRUE(hopeless(tried(equal_tries(5, 0.1)), {}));
  EXPECT_FALSE(hopeless(tried({0.1, 0.1, 0.1, 0.9, 0.1}), {}));
  EXPECT_FALSE(hopeless(tried(equal_tries(5, 0.7)), {}));
}

TEST(Retest, NoiseRequiresMoreTriesAsLongAsTheyHelp) {
  EXPECT_EQ(tries_for(0.01, {}), kMinTries);
  EXPECT_GT(tries_for(0.08, {}), kMinTries);
  EXPECT_LE(tries_for(0.08, {}), kMaxTries);
  EXPECT_EQ(tries_for(0.2, {}), kMinTries);  // enough for a node at half of the speed
  EXPECT_EQ(tries_for(0.4, {}), kTriesInVain);
  EXPECT_LE(retest_limit(0.08, tries_for(0.08, {}), {}), 0.2);
  EXPECT_GT(retest_limit(0.15, kMaxTries, {}), 0.2);
}

// The slowdown that noise may hide is reported as a fraction of the speed, so that the suspect does
// not count as healthy.
TEST(Retest, SlowdownHiddenInTheNoiseIsReported) {
  const Retest noisy = tried(equal_tries(9, 1), 0.4);
  ASSERT_EQ(outcome(noisy, {}), Outcome::noisy);
  EXPECT_GT(hidden_by_noise(noisy, {}), 0.2);
  EXPECT_DOUBLE_EQ(hidden_by_noise(noisy, {}), 1 - estimate(noisy, Direction::send)->lowest());
  EXPECT_EQ(hidden_by_noise(tried(equal_tries(9, 1)), {}), 0);
  EXPECT_EQ(hidden_by_noise(tried(equal_tries(9, 0.5)), {}), 0);
  EXPECT_EQ(hidden_by_noise(Retest{}, {}), 0);
}

TEST(Retest, NodeIsLateAtThreeTimesTheLatencyInNearlyAllTries) {
  Retest retest = tried(equal_tries(9, 1));
  EXPECT_FALSE(late_by(retest));
  for (Try& one : retest.tries) {
    one.latency_seconds = 50e-6;
    one.beside_latency_seconds = 10e-6;
  }
  ASSERT_TRUE(late_by(retest));
  EXPECT_DOUBLE_EQ(*late_by(retest), 5);
  retest.tries[4].latency_seconds = 10e-6;
  EXPECT_FALSE(late_by(retest));
}

}  // namespace
}  // namespace ddp::check
