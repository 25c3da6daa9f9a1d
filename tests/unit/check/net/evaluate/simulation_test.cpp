// SPDX-License-Identifier: Apache-2.0
// Tests fault localization and thresholds on simulated clusters with known faults, as in `ddp-check
// simulate`. The rule was chosen with other seeds.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <numbers>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/check/findings/pattern.h"
#include "ddp_runtime/check/net/evaluate/simulate.h"

namespace ddp::check {
namespace {

struct Scenario {
  int nodes;
  double noise;
  int trials;
  double right;  // required fraction of clusters with the right exclude list
};

void PrintTo(const Scenario& s, std::ostream* out) {
  *out << s.nodes << " nodes, noise " << s.noise;
}

Simulation of(const Scenario& scenario, int bad, std::uint64_t seed) {
  Simulation simulation;
  simulation.nodes = scenario.nodes;
  simulation.noise = scenario.noise;
  simulation.bad = bad;
  simulation.trials = scenario.trials;
  simulation.seed = seed;
  return simulation;
}

class OneBadNode : public testing::TestWithParam<Scenario> {};

TEST_P(OneBadNode, IsTheOnlyNodeExcluded) {
  const auto& scenario = GetParam();
  const auto result = simulate(of(scenario, 1, 20240607), {});
  EXPECT_GE(result.right, scenario.right * result.trials);
  EXPECT_EQ(result.wrong_exclude, 0);
  EXPECT_EQ(result.silent, 0);
}

TEST_P(OneBadNode, NoNodeIsExcludedInAHealthyCluster) {
  const auto result = simulate(of(GetParam(), 0, 20240608), {});
  EXPECT_EQ(result.wrong_exclude, 0);
  EXPECT_LE(result.false_alarms, result.trials / 100);
}

INSTANTIATE_TEST_SUITE_P(
    Gauss, OneBadNode,
    testing::Values(Scenario{16, 0.02, 200, 0.99}, Scenario{16, 0.05, 200, 0.99},
                    Scenario{16, 0.07, 200, 0.95}, Scenario{64, 0.02, 100, 0.99},
                    Scenario{64, 0.05, 100, 0.99}, Scenario{64, 0.07, 100, 0.95},
                    Scenario{500, 0.02, 30, 0.99}, Scenario{500, 0.05, 30, 0.99},
                    Scenario{500, 0.07, 30, 0.95}));

struct FaultCase {
  const char* model;
  const char* fault;
  double noise;
  double right;
};

void PrintTo(const FaultCase& c, std::ostream* out) {
  *out << c.fault << " in " << c.model << " noise of " << c.noise;
}

class Faults64 : public testing::TestWithParam<FaultCase> {};

// One faulty node with 0.7 of the speed among 64 nodes.
TEST_P(Faults64, AreClassifiedCorrectly) {
  Simulation simulation;
  simulation.nodes = 64;
  simulation.bad = 1;
  simulation.trials = 100;
  simulation.noise = GetParam().noise;
  simulation.seed = 5;
  set_model(GetParam().model, simulation);
  set_fault(GetParam().fault, simulation);
  const auto result = simulate(simulation, {});
  EXPECT_GE(result.exact, GetParam().right * result.trials);
  EXPECT_LE(result.false_alarms, 1);
  EXPECT_EQ(result.wrong_exclude, 0);
}

INSTANTIATE_TEST_SUITE_P(Table, Faults64,
                         testing::Values(FaultCase{"gauss", "send", 0.03, 0.99},
                                         FaultCase{"gauss", "receive", 0.03, 0.99},
                                         FaultCase{"gauss", "link", 0.03, 0.99},
                                         FaultCase{"gauss", "loss", 0.03, 0.99},
                                         FaultCase{"tail", "node", 0.05, 0.97},
                                         FaultCase{"lognormal", "node", 0.07, 0.95},
                                         FaultCase{"onesided", "node", 0.05, 0.97},
                                         FaultCase{"hetero", "node", 0.03, 0.99}));

// If noise hides a bad node, the verdict is UNKNOWN, and never OK.
TEST(Locator, BadNodeHiddenInNoiseIsUnknown) {
  for (const int bad : {0, 1}) {
    Simulation simulation;
    simulation.nodes = 64;
    simulation.bad = bad;
    simulation.noise = 0.15;
    simulation.trials = 100;
    set_model("lognormal", simulation);
    const auto result = simulate(simulation, {});
    EXPECT_EQ(result.silent, 0);
    EXPECT_EQ(result.wrong_exclude, 0);
    EXPECT_GT(result.limit, 0.2);
    EXPECT_GE(result.unknown, bad == 0 ? 100 : 0);
  }
}

// Oversubscribed switches may hide bad nodes in the rounds. If so, the verdict must not be OK.
TEST(Locator, OversubscribedUplinksAreNeverOk) {
  Simulation simulation;
  simulation.nodes = 64;
  simulation.bad = 1;
  simulation.trials = 100;
  set_model("leaf:16:3", simulation);
  const auto result = simulate(simulation, {});
  EXPECT_LE(result.silent, 2);
  EXPECT_EQ(result.wrong_exclude, 0);
}

// Nodes with half of the link rate are not faulty, so none is blamed.
TEST(Locator, ClusterWithTwoLinkRatesIsHealthy) {
  Simulation simulation;
  simulation.nodes = 64;
  simulation.bad = 0;
  simulation.trials = 100;
  set_model("hetero", simulation);
  const auto result = simulate(simulation, {});
  EXPECT_EQ(result.exact, 100);
}

TEST(Locator, IntermittentFaultIsAtLeastAWarning) {
  Simulation simulation;
  simulation.nodes = 64;
  simulation.bad = 1;
  simulation.bad_speed = 0.3;
  simulation.trials = 200;
  set_fault("intermittent:0.5", simulation);
  auto result = simulate(simulation, {});
  EXPECT_GE(result.named, 150);
  EXPECT_EQ(result.wrong_exclude, 0);
  set_fault("intermittent:0.8", simulation);
  result = simulate(simulation, {});
  EXPECT_GE(result.named, 190);
}

// A node that is slower by the reported detection limit must be found in 19 of 20 clusters.
TEST(Locator, DetectionLimitHolds) {
  for (const double noise : {0.02, 0.04, 0.06}) {
    Simulation simulation;
    simulation.nodes = 64;
    simulation.bad = 1;
    simulation.noise = noise;
    simulation.trials = 100;
    simulation.bad_speed = 1 - simulate(simulation, {}).limit;
    EXPECT_GE(simulate(simulation, {}).named, 90) << noise << " " << simulation.bad_speed;
  }
}

TEST(Locator, FindsEightBadNodesOfAThousandInThreeRounds) {
  Simulation simulation;
  simulation.trials = 30;
  const auto result = simulate(simulation, {});
  std::cout << "8 bad of 1024: " << result.exact << " of 30 exact, " << result.steps
            << " rounds and retests\n";
  EXPECT_EQ(result.exact, 30);
}

// If the pairs never change, the bad node's partner is as slow as the bad node.
TEST(Locator, OneFixedRoundNamesNoNode) {
  Simulation simulation;
  simulation.nodes = 64;
  simulation.bad = 1;
  simulation.rounds = 1;
  simulation.retests = false;
  EXPECT_EQ(simulate(simulation, {}).exact, 0);
}

// Of the 8 bad nodes, about 7 meet a good one, which is as slow in this round.
TEST(Locator, PartnersOfBadNodesAreNotExcluded) {
  Simulation simulation;
  simulation.nodes = 64;
  simulation.bad = 8;
  simulation.rounds = 1;
  simulation.trials = 100;
  const auto result = simulate(simulation, {});
  EXPECT_EQ(result.wrong_exclude, 0);
  EXPECT_EQ(result.false_alarms, 0);
  EXPECT_GE(result.right, 95);
}

TEST(Locator, UnknownModelsAndFaultsAreRejected) {
  Simulation simulation;
  for (const char* model :
       {"", "normal", "leaf", "leaf:16", "leaf:0:2", "leaf:16:x", "leaf:16:nan", "gauss:1"}) {
    EXPECT_THROW(set_model(model, simulation), UsageError) << model;
  }
  for (const char* fault : {"", "disk", "intermittent", "intermittent:2", "node:1"}) {
    EXPECT_THROW(set_fault(fault, simulation), UsageError) << fault;
  }
  set_model("leaf:24:2.5", simulation);
  EXPECT_EQ(simulation.leaf_nodes, 24);
  EXPECT_DOUBLE_EQ(simulation.uplink_ratio, 2.5);
}

// Uniform and normal random numbers that do not depend on the standard library.
class Random {
 public:
  double uniform() {
    return (static_cast<double>(pattern_word(11, drawn_++) >> 11U) + 0.5) * 0x1.0p-53;
  }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::uint64_t drawn_ = 0;
};

// Simulates clusters whose node speeds are N(1, 2 %), measured without pairs. Returns how often the
// rule blames a healthy node or, if one node has `slow_speed`, how often it finds that node.
double rate_of_accusations(int nodes, double slow_speed, int trials) {
  Random random;
  int accusations = 0;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<double> speeds;
    for (int node = 0; node < nodes; ++node) speeds.push_back(1 + 0.02 * random.normal());
    speeds[0] *= slow_speed;
    const auto thresholds = peer_thresholds(speeds, {});
    bool any = false;
    for (const double speed : speeds) any |= evaluate_by_peers(speed, *thresholds) != Severity::ok;
    accusations += any ? 1 : 0;
  }
  return accusations / static_cast<double>(trials);
}

class HealthyFleet : public testing::TestWithParam<int> {};

TEST_P(HealthyFleet, HasNoFalseAlarms) {
  // A node five standard deviations below the mean occurs once in several thousand clusters of 128
  // nodes.
  EXPECT_LE(rate_of_accusations(GetParam(), 1.0, 4000), 0.0005);
}

TEST_P(HealthyFleet, FindsASlowdownOfThirtyPercent) {
  EXPECT_GE(rate_of_accusations(GetParam(), 0.7, 4000), GetParam() == 4 ? 0.98 : 0.999);
}

INSTANTIATE_TEST_SUITE_P(Sizes, HealthyFleet, testing::Values(4, 8, 16, 32, 64, 128));

}  // namespace
}  // namespace ddp::check
