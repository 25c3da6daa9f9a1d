// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/extrapolation.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/report/analysis/extrap_file.h"
#include "ddp_runtime/report/analysis/growth_fit.h"
#include "tests/unit/report/sample_runs.h"

namespace ddp::report {
namespace {

using test::run_json;
using test::run_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The times of a step, in seconds.
struct Truth {
  std::function<double(int ranks)> computation;
  std::function<double(int ranks)> communication;
  bool strong = false;

  double step(int ranks) const { return computation(ranks) + communication(ranks); }
  double efficiency(int ranks, int base) const {
    return step(base) / step(ranks) / (strong ? ranks / double(base) : 1);
  }
};

struct Sweep {
  std::vector<int> sizes{1, 2, 4, 8, 16, 32};
  int repeats = 3;
  double noise = 0.05;  // relative standard deviation of both times
  int ranks_per_node = 2;
};

Scaling sweep_of(const Truth& truth, const Sweep& made, std::mt19937_64& random) {
  static const RunRecord kRun = run_of(run_json(1, 64, {0, 0, 1, 0, 0, 0, 0}));
  std::normal_distribution<double> gauss(0, 1);
  std::vector<RunRecord> runs;
  for (const int ranks : made.sizes) {
    for (int i = 0; i < made.repeats; ++i) {
      const double work = truth.computation(ranks) * std::exp(made.noise * gauss(random));
      const double wire =
          ranks == 1 ? 0 : truth.communication(ranks) * std::exp(made.noise * gauss(random));
      auto& run = runs.emplace_back(kRun);
      run.world_size = ranks;
      run.nodes = (ranks + made.ranks_per_node - 1) / made.ranks_per_node;
      run.global_batch = truth.strong ? 4096 : 32.0 * ranks;
      run.step.mean = work + wire;
      run.step.parts[index_of(Phase::backward)] = work;
      run.step.parts[index_of(Phase::exposed_comm)] = wire;
      run.samples_per_second = *run.global_batch / *run.step.mean;
    }
  }
  return analyze(std::move(runs));
}

Scaling sweep_without_noise(const Truth& truth) {
  std::mt19937_64 random(1);
  return sweep_of(truth, {.noise = 0}, random);
}

struct Coverage {
  double answered = 0;  // fraction of the sweeps with a figure for four times as many ranks
  double covered = 0;   // of these
};

Coverage coverage(const Truth& truth, const Sweep& made = {}) {
  constexpr int kSweeps = 1000;
  std::mt19937_64 random(11);
  int answered = 0;
  int covered = 0;
  for (int i = 0; i < kSweeps; ++i) {
    const auto result = extrapolate(sweep_of(truth, made, random));
    if (result.points.size() < 2) continue;
    ++answered;
    const auto& last = result.points.back();
    EXPECT_EQ(last.ranks, 4 * made.sizes.back());
    covered +=
        last.efficiency_interval.contains(truth.efficiency(last.ranks, made.sizes.front())) ? 1 : 0;
  }
  return {answered / double(kSweeps), answered == 0 ? 0 : covered / double(answered)};
}

double same(int) {
  return 0.1;
}

const Truth kRing{same, [](int n) { return 3e-4 * (n - 1) + 0.02 * (n - 1) / n; }};
const Truth kTree{same, [](int n) { return 0.006 * std::log2(n); }};
// Nodes of eight ranks, a ring between the nodes.
const Truth kHierarchical{same, [](int n) {
                            const double nodes = std::ceil(n / 8.0);
                            return (n == 1 ? 0 : 0.004) + 1e-3 * (nodes - 1);
                          }};
const Truth kStrong{[](int n) { return 0.4 / n + 0.005; }, [](int n) { return n == 1 ? 0 : 0.004; },
                    true};

void expect_coverage(const Truth& truth, const Sweep& made = {}, double answered = 0.9) {
  const auto result = coverage(truth, made);
  EXPECT_GE(result.covered, 0.85);
  EXPECT_GE(result.answered, answered);
}

TEST(Extrapolation, CoversTheTruthOfRings) {
  expect_coverage(kRing);
}

TEST(Extrapolation, CoversTheTruthOfTrees) {
  expect_coverage(kTree);
}

TEST(Extrapolation, CoversTheTruthOfHierarchicalCollectives) {
  expect_coverage(kHierarchical, {.sizes = {8, 16, 32, 64, 128}, .ranks_per_node = 8});
}

TEST(Extrapolation, CoversTheTruthOfTori) {
  expect_coverage({same, [](int n) { return n == 1 ? 0 : 0.006 * std::sqrt(n); }});
}

// Growth with the number of ranks cannot be ruled out in half of them, so that the range at four
// times as many would say nothing.
TEST(Extrapolation, CoversStrongScalingWithAConstantOverhead) {
  expect_coverage(kStrong, {}, 0.5);
}

TEST(Extrapolation, InventsNoGrowthOfAConstantOverhead) {
  std::mt19937_64 random(5);
  int invented = 0;
  for (int i = 0; i < 100; ++i) {
    const auto result = extrapolate(sweep_of(kStrong, {}, random));
    invented += result.communication.find('N') != std::string::npos ? 1 : 0;
  }
  EXPECT_LE(invented, 20) << "the best model is that of a constant";
  const auto result = extrapolate(sweep_without_noise(kStrong));
  EXPECT_EQ(result.computation, "400 ms / N + 5.00 ms");
  EXPECT_EQ(result.communication, "4.00 ms");
}

TEST(Extrapolation, ExactTimesAreContinuedExactly) {
  const auto result = extrapolate(sweep_without_noise(kRing));
  EXPECT_THAT(result.refusal, IsEmpty());
  ASSERT_THAT(result.points, SizeIs(2));
  EXPECT_EQ(result.communication, "20.0 ms (N - 1) / N + 0.300 ms (N - 1)");
  for (const auto& point : result.points) {
    EXPECT_NEAR(point.seconds, kRing.step(point.ranks), 1e-6);
    EXPECT_NEAR(point.efficiency, kRing.efficiency(point.ranks, 1), 1e-4);
    EXPECT_NEAR(point.communication, kRing.communication(point.ranks) / kRing.step(point.ranks),
                1e-4);
  }
}

TEST(Extrapolation, IsRefusedWithAReason) {
  std::mt19937_64 random(1);
  const auto refusal = [&](Sweep made) {
    return extrapolate(sweep_of(kRing, made, random)).refusal;
  };
  EXPECT_THAT(refusal({.sizes = {1, 2, 4}}), HasSubstr("at least 4 numbers of ranks"));
  EXPECT_THAT(refusal({.sizes = {1, 2, 4}}), HasSubstr("there are 3."));
  EXPECT_THAT(refusal({.ranks_per_node = 64}), HasSubstr("on one node"));
  EXPECT_THAT(refusal({.ranks_per_node = 8}),
              HasSubstr("on several nodes, whose network decides; there are 2."));
  EXPECT_THAT(refusal({.sizes = {2, 4, 8, 16}, .repeats = 1}), HasSubstr("too few for a fit"));
  EXPECT_THAT(refusal({.sizes = {4, 8, 16, 32}, .repeats = 1, .noise = 1}),
              HasSubstr("factor of three"));
  auto one = run_of(run_json(2, 64, {0, 0, 0.1, 0, 0, 0, 0}));
  EXPECT_THAT(extrapolate(analyze({one})).refusal, HasSubstr("there are 1."));
}

// More noise must not give a narrower range.
TEST(Extrapolation, NoiseWidensTheRange) {
  const auto width = [](double noise) {
    std::mt19937_64 random(2);
    Sweep made;
    made.noise = noise;
    const auto result = extrapolate(sweep_of(kTree, made, random));
    const auto& range = result.points.front().seconds_interval;
    return range.most / range.least;
  };
  EXPECT_LT(width(0.01), width(0.03));
  EXPECT_LT(width(0.03), width(0.06));
}

// What no model here describes must not be continued with a narrow range.
TEST(Extrapolation, IsRefusedIfNoModelAgreesWithTheRuns) {
  const std::pair<const char*, Truth> truths[] = {
      {"N log N", {same, [](int n) { return 2e-4 * n * std::log2(n); }}},
      {"N squared", {same, [](int n) { return 2e-5 * n * n; }}},
      {"hidden until 8 ranks", {same, [](int n) { return n <= 8 ? 0.003 : 2e-3 * (n - 8); }}},
      {"a jump between leaves", {same, [](int n) { return n <= 16 ? 0.01 : 0.06; }}}};
  for (const auto& [name, truth] : truths) {
    const auto result = coverage(truth);
    const double wrong = result.answered * (1 - result.covered);
    EXPECT_LE(wrong, 0.15) << name << ": answered " << result.answered << ", right "
                           << result.covered;
  }
  EXPECT_THAT(extrapolate(sweep_without_noise(truths[1].second)).refusal,
              HasSubstr("no model agrees with how communication"));
}

TEST(Extrapolation, RefusalsNameTheirReason) {
  const auto refusal = [&](const std::function<void(RunRecord&)>& change) {
    std::vector<RunRecord> runs;
    for (const auto& point : sweep_without_noise(kTree).points) {
      for (auto run : point.runs) {
        change(run);
        runs.push_back(run);
      }
    }
    return extrapolate(analyze(runs)).refusal;
  };
  constexpr auto kExposed = index_of(Phase::exposed_comm);
  EXPECT_EQ(refusal([](RunRecord&) {}), "");
  EXPECT_THAT(refusal([](RunRecord& run) {
                if (run.world_size == 4) run.global_batch = std::nullopt;
              }),
              HasSubstr("batch size of a run is unknown"));
  EXPECT_THAT(refusal([](RunRecord& run) { *run.samples_per_second /= 2; }),
              HasSubstr("time between them"));
  EXPECT_THAT(refusal([](RunRecord& run) {
                if (run.world_size == 1) run.step.mean = std::nullopt;
              }),
              HasSubstr("step time of the base is unknown"));
  EXPECT_THAT(refusal([](RunRecord& run) { run.step.parts[kExposed] = 0; }),
              HasSubstr("backward hides the communication"));
  EXPECT_THAT(refusal([](RunRecord& run) { run.step.parts[kExposed] = 1; }),
              HasSubstr("longer than the step"));
  EXPECT_THAT(refusal([](RunRecord& run) {
                run.world_size <<= 16;
                run.nodes <<= 16;
                run.global_batch = *run.global_batch * (1 << 16);
                *run.samples_per_second *= 1 << 16;
              }),
              HasSubstr("no further than"));
}

// The same base as in the rest of the sweep's report.
TEST(Extrapolation, EfficiencyIsRelativeToTheMedianRunOfTheBase) {
  std::vector<RunRecord> runs;
  for (const auto& point : sweep_without_noise(kTree).points) {
    runs.insert(runs.end(), point.runs.begin(), point.runs.end());
  }
  runs.front().step.mean = *runs.front().step.mean * 1.2;
  runs.front().step.parts[index_of(Phase::backward)] = *runs.front().step.mean;
  *runs.front().samples_per_second /= 1.2;
  const auto points = extrapolate(analyze(runs)).points;
  ASSERT_FALSE(points.empty());
  for (const auto& point : points) {
    EXPECT_NEAR(point.efficiency * point.seconds, kTree.step(1), 1e-9);
    EXPECT_LE(point.efficiency_interval.most, 3 * point.efficiency_interval.least);
  }
}

// Extra-P 4.2 refuses a file in which a callpath lacks a number of ranks.
TEST(ExtrapFile, HasEachPhaseWithEveryNumberOfRanks) {
  auto one = run_json(1, 64, {0.25, 0.5, 0.5, 0, 0.25, 0, 0});
  auto two = run_json(2, 64, {0.25, 0.25, 0.25, 0.25, 0.25, 0, 0});
  two["step_seconds"]["waiting"] = 0.125;
  two["step_seconds"]["checkpoint"] = nullptr;
  const auto lines = to_extrap(analyze({run_of(one), run_of(two), run_of(two)}));
  const auto has = [&](const std::string& callpath, int ranks, double seconds) {
    const nlohmann::json line = {{"params", {{"ranks", ranks}}},
                                 {"callpath", callpath},
                                 {"metric", "seconds"},
                                 {"value", seconds}};
    return lines.find(line.dump() + "\n") != std::string::npos;
  };
  EXPECT_TRUE(has("step", 1, 1.5)) << lines;
  EXPECT_TRUE(has("step->data", 2, 0.25)) << lines;
  EXPECT_TRUE(has("step->exposed_comm", 2, 0.25)) << lines;
  EXPECT_TRUE(has("step->exposed_comm->waiting", 1, 0)) << lines;
  EXPECT_TRUE(has("step->exposed_comm->waiting", 2, 0.125)) << lines;
  EXPECT_EQ(lines.find("checkpoint"), std::string::npos) << lines;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 3 * 8) << "the step, and seven phases";
}

// Exposed communication must mean the same in all runs.
TEST(ExtrapFile, WaitingThatSomeRunLacksIsNotTakenOutOfTheCommunication) {
  auto with = run_json(2, 64, {0.25, 0.25, 0.25, 0.25, 0, 0, 0});
  with["step_seconds"]["waiting"] = 0.125;
  const auto without = run_json(4, 64, {0.25, 0.25, 0.25, 0.5, 0, 0, 0});
  const auto lines = to_extrap(analyze({run_of(with), run_of(without)}));
  EXPECT_EQ(lines.find("waiting"), std::string::npos);
  EXPECT_THAT(lines, HasSubstr("\"step->exposed_comm\",\"metric\":\"seconds\",\"params\":{"
                               "\"ranks\":2},\"value\":0.25}"));
  auto unknown = run_of(with);
  unknown.step.mean = std::nullopt;
  EXPECT_THROW(to_extrap(analyze({unknown})), RuntimeError);
}

}  // namespace
}  // namespace ddp::report
