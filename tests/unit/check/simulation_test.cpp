// The locator and the thresholds against simulated fleets with known bad nodes. Random numbers are
// our own, so that one seed gives one result with every standard library.
//
// The model: a bad node runs at 0.7 of the speed of the others, a pair at the smaller of its nodes'
// speeds with 2 % noise, and 3 % of the exchanges are slowed to 0.6 by traffic that has nothing to
// do with the nodes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <set>
#include <vector>

#include "ddp_runtime/check/net/locate.h"

namespace ddp::check {
namespace {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {  // splitmix64
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  double uniform() { return (static_cast<double>(next() >> 11U) + 0.5) * 0x1.0p-53; }
  double normal() {
    return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t state_;
};

struct Fleet {
  std::vector<double> speeds;
  std::set<int> bad;
};

Fleet make_fleet(int nodes, int bad, double bad_speed, Random& random) {
  Fleet fleet{std::vector<double>(static_cast<std::size_t>(nodes), 1.0), {}};
  while (fleet.bad.size() < static_cast<std::size_t>(bad)) {
    const int node = static_cast<int>(random.next() % static_cast<std::uint64_t>(nodes));
    if (fleet.bad.insert(node).second) fleet.speeds[static_cast<std::size_t>(node)] = bad_speed;
  }
  return fleet;
}

void measure(const Fleet& fleet, const Round& round, double congested, Random& random,
             std::vector<PairResult>& results) {
  for (const auto& pair : round) {
    double speed = std::min(fleet.speeds[static_cast<std::size_t>(pair.a)],
                            fleet.speeds[static_cast<std::size_t>(pair.b)]);
    speed *= 1 + 0.02 * random.normal();
    if (random.uniform() < congested) speed *= 0.6;
    PairResult result;
    result.pair = pair;
    result.a_to_b = result.b_to_a = speed;
    results.push_back(result);
  }
}

std::set<int> named(int nodes, const std::vector<PairResult>& results) {
  const auto flags = slow_nodes(nodes, results, {});
  std::set<int> names;
  for (int node = 0; node < nodes; ++node) {
    if (flags[static_cast<std::size_t>(node)]) names.insert(node);
  }
  return names;
}

struct Scenario {
  int nodes;
  int bad;
  int rounds;
  int trials;
  bool confirm;
  double exact_rate;  // what an independent simulation of the same model gave
};

double exact_rate(const Scenario& scenario) {
  Random random(20240607);
  int exact = 0;
  for (int trial = 0; trial < scenario.trials; ++trial) {
    const Fleet fleet = make_fleet(scenario.nodes, scenario.bad, 0.7, random);
    std::vector<PairResult> results;
    for (const auto& round : random_rounds(scenario.nodes, scenario.rounds, random.next())) {
      measure(fleet, round, 0.03, random, results);
    }
    if (scenario.confirm) {
      measure(fleet, confirmation_round(scenario.nodes, results, {}), 0, random, results);
    }
    exact += named(scenario.nodes, results) == fleet.bad ? 1 : 0;
  }
  return exact / static_cast<double>(scenario.trials);
}

class Locator : public testing::TestWithParam<Scenario> {};

TEST_P(Locator, NamesTheExactSetOfBadNodes) {
  EXPECT_NEAR(exact_rate(GetParam()), GetParam().exact_rate, 0.03);
}

INSTANTIATE_TEST_SUITE_P(ThreeRounds, Locator,
                         testing::Values(Scenario{8, 1, 3, 400, false, 0.99},
                                         Scenario{64, 1, 3, 400, false, 1.00},
                                         Scenario{256, 8, 3, 400, false, 0.94},
                                         Scenario{1024, 8, 3, 100, false, 0.95},
                                         Scenario{1024, 32, 3, 100, false, 0.80}));
INSTANTIATE_TEST_SUITE_P(TwoRoundsAreTooFew, Locator,
                         testing::Values(Scenario{8, 1, 2, 400, false, 0.93},
                                         Scenario{256, 8, 2, 400, false, 0.41},
                                         Scenario{1024, 8, 2, 100, false, 0.24}));
INSTANTIATE_TEST_SUITE_P(FourRounds, Locator,
                         testing::Values(Scenario{256, 8, 4, 400, false, 1.00},
                                         Scenario{1024, 32, 4, 100, false, 0.99}));
INSTANTIATE_TEST_SUITE_P(ThreeRoundsAndConfirmation, Locator,
                         testing::Values(Scenario{256, 8, 3, 400, true, 1.00},
                                         Scenario{1024, 32, 3, 100, true, 1.00}));

// Pairs that are always the same: the bad node's partner is as slow as the node.
TEST(Locator, FixedNeighboursNameNobody) {
  Random random(7);
  int exact = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const Fleet fleet = make_fleet(64, 1, 0.7, random);
    std::vector<PairResult> results;
    Round neighbours;
    for (int node = 0; node < 64; node += 2) neighbours.push_back({node, node + 1});
    measure(fleet, neighbours, 0.03, random, results);
    exact += named(64, results) == fleet.bad ? 1 : 0;
  }
  EXPECT_EQ(exact, 0);
}

// Fleets of N(1, 2 %) without pairs: how often a rule accuses somebody, or finds the one at 0.7.
double rate_of_accusations(int nodes, double slow_speed, int trials) {
  Random random(11);
  int accused = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<double> speeds;
    for (int node = 0; node < nodes; ++node) speeds.push_back(1 + 0.02 * random.normal());
    speeds[0] *= slow_speed;
    const auto thresholds = peer_thresholds(speeds, {});
    bool any = false;
    for (const double speed : speeds) any |= judge_by_peers(speed, *thresholds) != Severity::ok;
    accused += any ? 1 : 0;
  }
  return accused / static_cast<double>(trials);
}

class HealthyFleet : public testing::TestWithParam<int> {};

TEST_P(HealthyFleet, AccusesNobody) {
  // Five standard deviations below the mean happen once in some thousand fleets of 128.
  EXPECT_LE(rate_of_accusations(GetParam(), 1.0, 4000), 0.0005);
}

TEST_P(HealthyFleet, FindsASlowdownOfThirtyPercent) {
  EXPECT_GE(rate_of_accusations(GetParam(), 0.7, 4000), GetParam() == 4 ? 0.98 : 0.999);
}

INSTANTIATE_TEST_SUITE_P(Sizes, HealthyFleet, testing::Values(4, 8, 16, 32, 64, 128));

}  // namespace
}  // namespace ddp::check
