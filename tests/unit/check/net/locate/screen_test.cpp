// SPDX-License-Identifier: Apache-2.0
// Tests which nodes and links become suspects after the rounds, the noise of the rounds, and the
// slowdown that they may hide.
#include "ddp_runtime/check/net/locate/screen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "ddp_runtime/check/findings/pattern.h"

namespace ddp::check {
namespace {

// All pairs of `nodes` nodes. A node's speed limits the speed of its pairs.
std::vector<PairResult> rounds_of(int nodes, const std::map<int, double>& slow = {}) {
  const auto speed = [&slow](int node) { return slow.contains(node) ? slow.at(node) : 100.0; };
  std::vector<PairResult> results;
  for (const auto& round : all_rounds(nodes)) {
    for (const auto& pair : round) {
      PairResult result;
      result.pair = pair;
      result.a_to_b = result.b_to_a = std::min(speed(pair.a), speed(pair.b));
      result.latency_seconds = 1e-5;
      results.push_back(result);
    }
  }
  return results;
}

// Multiplies each speed by a uniform factor between 1 - width and 1 + width. The standard deviation
// is width / sqrt(3).
void disturb(std::vector<PairResult>& results, double width) {
  std::uint64_t drawn = 0;
  const auto factor = [&] {
    const double part = static_cast<double>(pattern_word(5, drawn++) >> 11U) * 0x1.0p-53;
    return 1 + width * (2 * part - 1);
  };
  for (auto& result : results) {
    result.a_to_b *= factor();
    result.b_to_a *= factor();
  }
}

std::set<int> nodes_of(const Screen& screen) {
  std::set<int> nodes;
  for (std::size_t i = 0; i < screen.nodes.size(); ++i) {
    if (screen.nodes[i]) nodes.insert(static_cast<int>(i));
  }
  return nodes;
}

TEST(Screen, HealthyClusterHasNoSuspects) {
  const Screen seen = screen(8, rounds_of(8), {});
  EXPECT_TRUE(nodes_of(seen).empty());
  EXPECT_TRUE(seen.pairs.empty());
  EXPECT_EQ(seen.noise, 0);
  EXPECT_NEAR(*seen.limit, 0.1, 1e-9);
}

TEST(Screen, SuspectsSlowNodesNotTheirPartners) {
  EXPECT_EQ(nodes_of(screen(4, rounds_of(4, {{2, 50.0}}), {})), std::set<int>{2});
  const Screen two = screen(8, rounds_of(8, {{1, 70.0}, {5, 70.0}}), {});
  EXPECT_EQ(nodes_of(two), (std::set<int>{1, 5}));
  EXPECT_TRUE(two.pairs.empty());
}

TEST(Screen, SuspectsASlowPairOfGoodNodes) {
  auto results = rounds_of(6);
  for (auto& result : results) {
    if (result.pair == Pair{1, 4}) result.b_to_a = 30;
  }
  const Screen seen = screen(6, results, {});
  EXPECT_TRUE(nodes_of(seen).empty());
  EXPECT_EQ(seen.pairs, (std::vector<Pair>{{1, 4}}));
}

// If a node is fast with some partners but much too slow with two, the node is the suspect, not its
// links.
TEST(Screen, SlowWithSeveralPartnersMakesTheNodeASuspect) {
  auto results = rounds_of(6);
  for (auto& result : results) {
    if (result.pair == Pair{1, 4} || result.pair == Pair{1, 3}) result.b_to_a = 30;
  }
  const Screen seen = screen(6, results, {});
  EXPECT_EQ(nodes_of(seen), std::set<int>{1});
  EXPECT_TRUE(seen.pairs.empty());
}

TEST(Screen, SuspectsANodeWithHighLatencyToAllPartners) {
  auto results = rounds_of(6);
  for (auto& result : results) {
    if (result.pair.a == 3 || result.pair.b == 3) result.latency_seconds = 8e-5;
  }
  EXPECT_EQ(nodes_of(screen(6, results, {})), std::set<int>{3});
  results.back().latency_seconds = 8e-5;
  results.front().latency_seconds = 1e-5;
  for (auto& result : results) {
    if (result.pair == Pair{3, 5}) result.latency_seconds = 1e-5;  // one exchange is not late
  }
  EXPECT_TRUE(nodes_of(screen(6, results, {})).empty());
}

TEST(Screen, NoiseDoesNotIncludeBadNodes) {
  auto results = rounds_of(40, {{3, 30.0}, {17, 50.0}});
  disturb(results, 0.1);
  EXPECT_NEAR(exchange_noise(40, results), 0.1 / std::sqrt(3), 0.012);
}

TEST(Screen, NoisierRoundsHideMore) {
  double before = 0;
  for (const double width : {0.0, 0.05, 0.1, 0.2, 0.4}) {
    auto results = rounds_of(20);
    disturb(results, width);
    const auto limit = detection_limit(20, results, {});
    ASSERT_TRUE(limit);
    EXPECT_GT(*limit, before) << width;
    before = *limit;
  }
  EXPECT_GT(before, PeerRule{}.critical);
}

TEST(Screen, HasNoLimitWithoutPeers) {
  EXPECT_FALSE(detection_limit(3, rounds_of(3), {}));
  EXPECT_FALSE(detection_limit(0, {}, {}));
}

// The links of nodes 0 to 3 have half the rate of the others.
TEST(Screen, NodesAreComparedWithinTheirLinkRate) {
  auto results = rounds_of(12, {{0, 50}, {1, 50}, {2, 50}, {3, 50}});
  Classes classes(12, 1);
  for (int node = 0; node < 4; ++node) classes[static_cast<std::size_t>(node)] = 0;
  EXPECT_TRUE(nodes_of(screen(12, results, {}, classes)).empty());
  EXPECT_TRUE(screen(12, results, {}, classes).pairs.empty());
  EXPECT_FALSE(nodes_of(screen(12, results, {})).empty());
  results = rounds_of(12, {{0, 50}, {1, 50}, {2, 50}, {3, 30}, {7, 60}});
  EXPECT_EQ(nodes_of(screen(12, results, {}, classes)), (std::set<int>{3, 7}));
}

TEST(Classes, FollowTheLinkRates) {
  EXPECT_TRUE(classes_by_rate({}).empty());
  EXPECT_TRUE(classes_by_rate({10.0, 10.0, std::nullopt}).empty());
  EXPECT_EQ(classes_by_rate({25.0, 10.0, std::nullopt, 25.0, 100.0}), (Classes{1, 0, 1, 1, 2}));
}

}  // namespace
}  // namespace ddp::check
