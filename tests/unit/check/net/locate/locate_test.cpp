// SPDX-License-Identifier: Apache-2.0
// Tests thresholds and the search for bad nodes with synthetic measurements.
#include "ddp_runtime/check/net/locate/locate.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

namespace ddp::check {
namespace {

TEST(Threshold, MedianIsCorrect) {
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{3, 1}), 2);
  EXPECT_EQ(median(std::vector<double>{9, 1, 5}), 5);
  EXPECT_EQ(median(std::vector<double>{9, 1, 5, 3}), 4);
}

TEST(Threshold, FloorAvoidsFalseAlarmsInQuietClusters) {
  // MAD alone would flag 99 among these.
  const auto thresholds = peer_thresholds(std::vector<double>{100, 100, 100, 99}, {});
  ASSERT_TRUE(thresholds);
  EXPECT_DOUBLE_EQ(thresholds->warning, 90);
  EXPECT_DOUBLE_EQ(thresholds->critical, 80);
  EXPECT_EQ(evaluate_by_peers(99, *thresholds), Severity::ok);
  EXPECT_EQ(evaluate_by_peers(90, *thresholds), Severity::ok);
  EXPECT_EQ(evaluate_by_peers(89, *thresholds), Severity::warning);
  EXPECT_EQ(evaluate_by_peers(79, *thresholds), Severity::critical);
}

TEST(Threshold, NoisyClustersGetWideThresholds) {
  // The deviations from 100 are 0, 10, 10, 20 and 20. Their median is 10, so the spread is 3.5 *
  // 1.4826 * 10 = 51.9.
  const auto thresholds = peer_thresholds(std::vector<double>{80, 90, 100, 110, 120}, {});
  ASSERT_TRUE(thresholds);
  EXPECT_NEAR(thresholds->warning, 48.1, 0.05);
  EXPECT_NEAR(thresholds->critical, 48.1, 0.05);
}

TEST(Threshold, AQuarterOfTheMedianIsSlowInAnyNoise) {
  // The median is 60 and the MAD is 45, so 3.5 * 1.4826 * MAD is far above the median.
  const auto thresholds = peer_thresholds(std::vector<double>{14, 20, 100, 110}, {});
  ASSERT_TRUE(thresholds);
  EXPECT_DOUBLE_EQ(thresholds->warning, 15);
  EXPECT_DOUBLE_EQ(thresholds->critical, 15);
}

TEST(Threshold, ThreeNodesAreTooFewToVote) {
  EXPECT_FALSE(peer_thresholds(std::vector<double>{100, 100, 1}, {}));
  EXPECT_TRUE(peer_thresholds(std::vector<double>{100, 100, 100, 1}, {}));
}

TEST(Threshold, LinkThresholdsAreFractionsOfTheRate) {
  EXPECT_EQ(evaluate_by_link(0.80, {}), Severity::ok);
  EXPECT_EQ(evaluate_by_link(0.79, {}), Severity::warning);
  EXPECT_EQ(evaluate_by_link(0.59, {}), Severity::critical);
}

PairResult exchange(int a, int b, double a_to_b, double b_to_a) {
  PairResult result;
  result.pair = {a, b};
  result.a_to_b = a_to_b;
  result.b_to_a = b_to_a;
  return result;
}

// All pairs of `nodes` nodes. A node's speed limits the speed of its pairs.
std::vector<PairResult> fleet_with(int nodes, const std::map<int, double>& slow) {
  const auto speed = [&slow](int node) { return slow.contains(node) ? slow.at(node) : 100.0; };
  std::vector<PairResult> results;
  for (const auto& round : all_rounds(nodes)) {
    for (const auto& [a, b] : round) {
      const double both = std::min(speed(a), speed(b));
      results.push_back(exchange(a, b, both, both));
    }
  }
  return results;
}

std::set<int> slow_set(int nodes, const std::vector<PairResult>& results) {
  const auto flags = slow_nodes(nodes, results, {});
  std::set<int> slow;
  for (int node = 0; node < nodes; ++node) {
    if (flags[static_cast<std::size_t>(node)]) slow.insert(node);
  }
  return slow;
}

// A tool that always names the two slowest nodes also names two in a healthy cluster.
TEST(Locate, HealthyClusterHasNoSlowNodesAndNoLossyLinks) {
  const auto results = fleet_with(8, {});
  EXPECT_TRUE(slow_set(8, results).empty());
  EXPECT_TRUE(lossy_pairs(results).empty());
}

TEST(Locate, NamesSlowNodesNotTheirPartners) {
  EXPECT_EQ(slow_set(4, fleet_with(4, {{2, 50.0}})), std::set<int>{2});
  EXPECT_EQ(slow_set(8, fleet_with(8, {{1, 70.0}, {5, 70.0}})), (std::set<int>{1, 5}));
}

TEST(Locate, OneSlowDirectionIsEnough) {
  auto results = fleet_with(4, {});
  for (auto& result : results) {
    if (result.pair.a == 1) result.a_to_b = 40;  // node 1 sends slowly
    if (result.pair.b == 1) result.b_to_a = 40;
  }
  EXPECT_EQ(slow_set(4, results), std::set<int>{1});
  const auto send = best_speeds(4, results, Direction::send);
  const auto receive = best_speeds(4, results, Direction::receive);
  EXPECT_EQ(send[1], 40);
  EXPECT_EQ(receive[1], 100);
  EXPECT_EQ(receive[0], 100);
  EXPECT_EQ(best_speeds(2, std::vector{exchange(0, 1, 40, 100)}, Direction::receive)[0], 100);
  EXPECT_EQ(best_speeds(2, std::vector{exchange(0, 1, 40, 100)}, Direction::receive)[1], 40);
}

TEST(Locate, FailedExchangeIsNotAMeasurement) {
  auto results = fleet_with(4, {});
  for (auto& result : results) {
    if (result.pair.a == 3 || result.pair.b == 3) result.failure = "timed out";
  }
  EXPECT_FALSE(best_speeds(4, results, Direction::send)[3]);
  EXPECT_TRUE(slow_set(4, results).empty());  // three values remain: too few to vote
}

TEST(Locate, LossIsDetectedAtAnySpeed) {
  auto results = fleet_with(6, {});
  results[3].lost = 0.05;
  results[4].lost = 0.0001;
  EXPECT_EQ(lossy_pairs(results), (std::vector<Pair>{results[3].pair}));
  results[3].failure = "ended";
  EXPECT_TRUE(lossy_pairs(results).empty());
}

struct ExplainCase {
  const char* name;
  int nodes;
  std::vector<Pair> bad;
  std::vector<Pair> good;
  bool everything;
  std::vector<int> named;
  std::vector<Pair> links;
  std::vector<bool> suspected = {};
};

TEST(Explain, FindsTheSmallestExplanation) {
  const std::vector<ExplainCase> cases{
      {"nothing", 4, {}, {{0, 1}, {2, 3}}, false, {}, {}},
      {"two nodes, one pair", 2, {{0, 1}}, {}, false, {}, {{0, 1}}},
      {"one of three", 3, {{0, 1}, {1, 2}}, {{0, 2}}, false, {1}, {}},
      {"all of three", 3, {{0, 1}, {0, 2}, {1, 2}}, {}, true, {}, {}},
      {"only its own pairs", 4, {{0, 1}, {0, 2}, {0, 3}}, {}, false, {0}, {}},
      {"two of four", 4, {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}}, {{2, 3}}, false, {0, 1}, {}},
      {"one link of four",
       4,
       {{1, 3}},
       {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {2, 3}},
       false,
       {},
       {{1, 3}}},
      {"now and then", 4, {{0, 1}, {0, 2}}, {{0, 3}, {1, 2}, {1, 3}, {2, 3}}, false, {0}, {}},
      {"one partner only", 4, {{0, 1}}, {{1, 2}, {1, 3}, {2, 3}}, false, {}, {{0, 1}}},
      {"the same pair twice", 3, {{0, 1}, {0, 1}}, {{0, 2}, {1, 2}}, false, {}, {{0, 1}}},
      {"suspected already",
       4,
       {{0, 1}},
       {{0, 2}, {1, 2}, {1, 3}},
       false,
       {1},
       {},
       {false, true, false, false}},
      {"both suspected",
       4,
       {{0, 1}},
       {{0, 2}, {1, 2}, {1, 3}},
       false,
       {},
       {{0, 1}},
       {true, true, false, false}},
      {"two against two",
       5,
       {{0, 2}, {0, 3}, {1, 2}, {1, 3}},
       {{0, 4}, {1, 4}, {2, 4}, {3, 4}},
       false,
       {},
       {{0, 2}, {0, 3}, {1, 2}, {1, 3}}}};
  for (const auto& test : cases) {
    const Explanation explanation = explain(test.nodes, test.bad, test.good, test.suspected);
    EXPECT_EQ(explanation.everything, test.everything) << test.name;
    EXPECT_EQ(explanation.nodes, test.named) << test.name;
    EXPECT_EQ(explanation.links, test.links) << test.name;
  }
}

}  // namespace
}  // namespace ddp::check
