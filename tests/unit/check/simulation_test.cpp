// The locator and the thresholds against simulated fleets with known bad nodes; the model is that
// of `ddp-check simulate`, and the rates expected are those of an independent simulation of it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <numbers>
#include <vector>

#include "ddp_runtime/check/net/judge/simulate.h"
#include "ddp_runtime/check/net/measure/pattern.h"

namespace ddp::check {
namespace {

struct Scenario {
  int nodes;
  int bad;
  int rounds;
  int trials;
  bool confirm;
  double exact_rate;  // what an independent simulation of the same model gave
};

double exact_rate(const Scenario& scenario) {
  Simulation simulation;
  simulation.nodes = scenario.nodes;
  simulation.bad = scenario.bad;
  simulation.rounds = scenario.rounds;
  simulation.trials = scenario.trials;
  simulation.retrials = scenario.confirm;
  simulation.seed = 20240607;
  const SimulationResult result = simulate(simulation, {});
  return result.exact / static_cast<double>(result.trials);
}

void PrintTo(const Scenario& s, std::ostream* out) {
  *out << s.bad << " of " << s.nodes << " nodes in " << s.rounds << " rounds";
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

// One to eight bad nodes of 1,024, with four rounds: what the page of ddp-check promises.
TEST(Locator, FourRoundsAreExactInNinetyNineOfAHundred) {
  int trials = 0;
  int exact = 0;
  int false_alarms = 0;
  for (int bad = 1; bad <= 8; ++bad) {
    Simulation simulation;
    simulation.bad = bad;
    simulation.rounds = 4;
    simulation.trials = 100;
    simulation.retrials = false;  // which would hide what the rounds miss
    simulation.seed = static_cast<std::uint64_t>(bad);
    const SimulationResult result = simulate(simulation, {});
    trials += result.trials;
    exact += result.exact;
    false_alarms += result.false_alarms;
  }
  std::cout << "1 to 8 bad of 1024, 4 rounds, " << trials << " fleets: " << exact << " exact, "
            << false_alarms << " with false alarms\n";
  EXPECT_GE(exact, trials * 99 / 100);
  EXPECT_LT(false_alarms, trials / 100);
}

TEST(Locator, HealthyFleetsHaveNoFindings) {
  Simulation simulation;
  simulation.bad = 0;
  simulation.trials = 100;
  EXPECT_EQ(simulate(simulation, {}).exact, 100);
}

// Pairs that are always the same: the bad node's partner is as slow as the node.
TEST(Locator, OneFixedRoundNamesNobody) {
  Simulation simulation;
  simulation.nodes = 64;
  simulation.bad = 1;
  simulation.rounds = 1;
  simulation.retrials = false;
  EXPECT_EQ(simulate(simulation, {}).exact, 0);
}

// Uniform and normal numbers, our own so that one seed gives one result everywhere.
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

// Fleets of N(1, 2 %) without pairs: how often a rule accuses somebody, or finds the one at 0.7.
double rate_of_accusations(int nodes, double slow_speed, int trials) {
  Random random;
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
