// SPDX-License-Identifier: Apache-2.0
// Speedup, efficiency and losses of made-up sweeps, with figures that can be checked by hand.
#include "ddp_runtime/report/analysis/scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/report/sample_runs.h"

namespace ddp::report {
namespace {

using test::kFourRanks;
using test::kOneRank;
using test::run_json;
using test::run_of;

Scaling strong() {
  return analyze({run_of(run_json(4, 64, kFourRanks)), run_of(run_json(1, 64, kOneRank))});
}

TEST(Scaling, StrongScalingMatchesHandCalculation) {
  const Scaling scaling = strong();
  EXPECT_EQ(scaling.kind, ScalingKind::strong);
  EXPECT_EQ(scaling.base, 1);
  ASSERT_EQ(scaling.points.size(), 2U);
  EXPECT_DOUBLE_EQ(*scaling.points[0].speedup, 1);
  EXPECT_DOUBLE_EQ(*scaling.points[0].efficiency, 1);
  EXPECT_FALSE(scaling.points[0].losses);
  EXPECT_DOUBLE_EQ(*scaling.points[1].speedup, 2);
  EXPECT_DOUBLE_EQ(*scaling.points[1].efficiency, 0.5);
}

// The ideal step is 0.25 s: a quarter of each phase. Forward and backward reach it; the optimizer
// takes 3/32 s more, communication 4/32 s, and other 1/32 s. In a step of 0.5 s that is 18.75 %, 25
// % and 6.25 %.
TEST(Scaling, LossesMatchHandCalculation) {
  const Losses losses = *strong().points[1].losses;
  EXPECT_NEAR(losses.phases[index_of(Phase::forward)], 0, 1e-12);
  EXPECT_NEAR(losses.phases[index_of(Phase::backward)], 0, 1e-12);
  EXPECT_NEAR(losses.phases[index_of(Phase::optimizer)], 0.1875, 1e-12);
  EXPECT_NEAR(losses.phases[index_of(Phase::exposed_comm)], 0.25, 1e-12);
  EXPECT_NEAR(losses.phases[index_of(Phase::other)], 0.0625, 1e-12);
  EXPECT_NEAR(losses.unaccounted, 0, 1e-12);
  EXPECT_NEAR(losses.outside, 0, 1e-12);
  EXPECT_NEAR(total(losses), 0.5, 1e-12);
}

TEST(Scaling, WeakScalingMatchesHandCalculation) {
  // The batch is four times as large; only communication increases the step, from 1 s to 1.25 s.
  std::vector<double> four = kOneRank;
  four[index_of(Phase::exposed_comm)] = 0.25;
  const Scaling scaling =
      analyze({run_of(run_json(1, 64, kOneRank)), run_of(run_json(4, 256, four))});
  EXPECT_EQ(scaling.kind, ScalingKind::weak);
  EXPECT_DOUBLE_EQ(*scaling.points[1].efficiency, 0.8);
  EXPECT_NEAR(scaling.points[1].losses->phases[index_of(Phase::exposed_comm)], 0.2, 1e-12);
  EXPECT_NEAR(total(*scaling.points[1].losses), 0.2, 1e-12);
}

TEST(Scaling, KindsAreDistinguished) {
  const auto kind_of = [](std::vector<std::pair<int, double>> runs) {
    std::vector<RunRecord> records;
    for (const auto& [size, batch] : runs)
      records.push_back(run_of(run_json(size, batch, kOneRank)));
    return analyze(records).kind;
  };
  EXPECT_EQ(kind_of({{1, 64}}), ScalingKind::single);
  EXPECT_EQ(kind_of({{2, 64}, {2, 128}}), ScalingKind::single);
  EXPECT_EQ(kind_of({{1, 64}, {2, 64}, {4, 64}}), ScalingKind::strong);
  EXPECT_EQ(kind_of({{1, 64}, {2, 128}, {4, 256}}), ScalingKind::weak);
  EXPECT_EQ(kind_of({{1, 64}, {2, 128}, {4, 128}}), ScalingKind::mixed);
  EXPECT_EQ(kind_of({{1, 64}, {2, 64}, {2, 128}}), ScalingKind::mixed);
  EXPECT_EQ(kind_of({{3, 48}, {6, 96}}), ScalingKind::weak);
}

TEST(Scaling, TheBaseIsTheSmallestWorldSize) {
  const Scaling scaling =
      analyze({run_of(run_json(8, 64, kFourRanks)), run_of(run_json(2, 64, kOneRank))});
  EXPECT_EQ(scaling.base, 2);
  EXPECT_DOUBLE_EQ(*scaling.points[1].speedup, 2);
  EXPECT_DOUBLE_EQ(*scaling.points[1].efficiency, 0.5);
}

RunRecord with_throughput(int world_size, std::optional<double> samples, const char* source) {
  auto run = run_json(world_size, 64, kOneRank);
  run["samples_per_second"] = samples ? nlohmann::json(*samples) : nlohmann::json();
  return run_of(run, source);
}

TEST(Scaling, UsesTheMedianOfSeveralRuns) {
  const Scaling scaling = analyze({with_throughput(1, 100, "base"), with_throughput(2, 190, "high"),
                                   with_throughput(2, 120, "low"), with_throughput(2, 150, "mid")});
  const ScalingPoint& point = scaling.points[1];
  EXPECT_EQ(point.runs.size(), 3U);
  EXPECT_EQ(point.median.source, "mid");
  EXPECT_EQ(point.slowest, 120);
  EXPECT_EQ(point.fastest, 190);
  EXPECT_DOUBLE_EQ(*point.efficiency, 0.75);
}

TEST(Scaling, SpreadOfTheBaseIsPartOfTheInterval) {
  const Scaling scaling = analyze({with_throughput(1, 80, ""), with_throughput(1, 100, ""),
                                   with_throughput(1, 125, ""), with_throughput(2, 150, "")});
  // The logarithms are -0.2231, 0 and 0.2231 from their mean.
  const double deviation = std::log(1.25);
  EXPECT_NEAR(*scaling.noise, 0.25, 1e-12);
  EXPECT_DOUBLE_EQ(*scaling.points[1].efficiency, 0.75);
  const double half = 2.920 * deviation * std::sqrt(1 + 1.0 / 3);
  EXPECT_NEAR(scaling.points[1].interval->least, 0.75 * std::exp(-half), 1e-12);
  EXPECT_NEAR(scaling.points[1].interval->most, 0.75 * std::exp(half), 1e-12);
  EXPECT_NEAR(scaling.points[0].interval->least, std::exp(-2.920 * deviation / std::sqrt(3)), 1e-12)
      << "the base has a spread, too";
}

TEST(Scaling, ARepetitionIsNotEnoughForAnInterval) {
  const Scaling scaling = analyze({with_throughput(1, 80, ""), with_throughput(1, 100, ""),
                                   with_throughput(2, 150, ""), with_throughput(4, 200, "")});
  EXPECT_FALSE(scaling.noise);
  for (const auto& point : scaling.points) EXPECT_FALSE(point.interval);
  EXPECT_FALSE(scaling.points[1].losses->intervals);
}

// A run of 64 samples per step with these parts.
RunRecord with_step(RunRecord run, double forward, double backward, double comm) {
  run.step.parts[index_of(Phase::forward)] = forward;
  run.step.parts[index_of(Phase::backward)] = backward;
  run.step.parts[index_of(Phase::exposed_comm)] = comm;
  run.step.mean = forward + backward + comm;
  run.samples_per_second = 64 / *run.step.mean;
  return run;
}

// Sweeps of three runs for each of 1, 2 and 4 ranks, whose truth is known. A step of the base is 1
// s; each run is slower or faster as a whole by 3 %, and its communication by another 10 %.
TEST(Scaling, NinetyOfAHundredIntervalsContainTheTruth) {
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  constexpr int kSweeps = 1000;
  std::map<int, RunRecord> like;
  for (const int ranks : {1, 2, 4}) {
    like[ranks] = run_of(run_json(ranks, 64, std::vector<double>(7, 0.0)));
  }
  int efficiencies = 0;
  int communication = 0;
  int backward = 0;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    std::vector<RunRecord> runs;
    for (const int ranks : {1, 2, 4}) {
      for (int repetition = 0; repetition < 3; ++repetition) {
        const double machine = std::exp(0.03 * normal(random));
        const double comm =
            ranks == 1 ? 0 : 0.05 * ranks * machine * std::exp(0.1 * normal(random));
        runs.push_back(
            with_step(like.at(ranks), 0.3 * machine / ranks, 0.7 * machine / ranks, comm));
      }
    }
    const Scaling scaling = analyze(std::move(runs));
    const ScalingPoint& four = scaling.points.back();
    const double truth = 0.25 / 0.45;
    if (four.interval->least <= truth && truth <= four.interval->most) ++efficiencies;
    const auto covers = [&four](Phase phase, double loss) {
      const Interval& interval = four.losses->intervals->at(index_of(phase));
      return interval.least <= loss && loss <= interval.most ? 1 : 0;
    };
    communication += covers(Phase::exposed_comm, 0.2 / 0.45);
    backward += covers(Phase::backward, 0);
  }
  EXPECT_NEAR(efficiencies, 0.90 * kSweeps, 0.03 * kSweeps);
  EXPECT_NEAR(communication, 0.90 * kSweeps, 0.03 * kSweeps);
  EXPECT_NEAR(backward, 0.90 * kSweeps, 0.03 * kSweeps);
}

TEST(Scaling, DifferentWorkloadIsDetected) {
  const auto differ = [](const char* key, const nlohmann::json& value) {
    auto other = run_json(2, 64, kOneRank);
    other[key] = value;
    return unlike(analyze({run_of(run_json(1, 64, kOneRank)), run_of(other)}));
  };
  EXPECT_EQ(differ("model", "mlp"), std::vector<std::string>{});
  EXPECT_EQ(differ("model", nullptr), std::vector<std::string>{})
      << "an unknown value is not a difference";
  EXPECT_EQ(differ("model", "cnn"), std::vector<std::string>{"model"});
  EXPECT_EQ(differ("data", "mnist"), std::vector<std::string>{"data"});
  EXPECT_EQ(differ("parameters", 99), std::vector<std::string>{"number of parameters"});
}

TEST(Scaling, DifferentSettingsAreDifferentWork) {
  const auto settings = R"({"precision": "fp32", "comm_hook": "off", "accumulate": 1,
                            "optimizer": "sgd", "staleness": "off", "deterministic": "no",
                            "checkpoint_activations": "no", "learning_rate": 0.1})"_json;
  const auto differ = [&](const char* key, const nlohmann::json& value) {
    auto base = run_json(1, 64, kOneRank);
    auto other = run_json(2, 64, kOneRank);
    base["settings"] = other["settings"] = settings;
    other["settings"][key] = value;
    return unlike(analyze({run_of(base), run_of(other)}));
  };
  const auto only = [](const char* name) { return std::vector<std::string>{name}; };
  EXPECT_EQ(differ("precision", "fp32"), std::vector<std::string>{});
  EXPECT_EQ(differ("precision", "bf16"), only("precision"));
  EXPECT_EQ(differ("comm_hook", "fp16"), only("comm hook"));
  EXPECT_EQ(differ("accumulate", 4), only("micro-batches per step"));
  EXPECT_EQ(differ("optimizer", "adamw"), only("optimizer"));
  EXPECT_EQ(differ("staleness", 0), only("staleness"));
  EXPECT_EQ(differ("deterministic", "yes"), only("deterministic sums"));
  EXPECT_EQ(differ("checkpoint_activations", "yes"), only("activation checkpointing"));
  EXPECT_EQ(differ("learning_rate", 0.4), std::vector<std::string>{})
      << "a different learning rate does not change the work";
  auto old = run_json(2, 64, kOneRank);
  auto base = run_json(1, 64, kOneRank);
  base["settings"] = settings;
  EXPECT_EQ(unlike(analyze({run_of(base), run_of(old)})), std::vector<std::string>{})
      << "an older version recorded no settings";
  old["settings"] = {{"precision", "bf16"}};
  EXPECT_EQ(unlike(analyze({run_of(base), run_of(old)})), only("precision"));
}

TEST(Scaling, UsesTheSlowerOfTwoRuns) {
  const Scaling scaling =
      analyze({with_throughput(2, 190, "high"), with_throughput(2, 120, "low")});
  EXPECT_EQ(scaling.points[0].median.source, "low");
}

TEST(Scaling, RunsWithoutAThroughputAreLeftOut) {
  const Scaling scaling =
      analyze({with_throughput(1, 100, "base"), with_throughput(2, std::nullopt, "none"),
               with_throughput(2, 150, "some"), with_throughput(4, std::nullopt, "nothing"),
               with_throughput(8, 0, "zero")});
  EXPECT_EQ(scaling.points[1].median.source, "some");
  EXPECT_FALSE(scaling.points[2].efficiency);
  EXPECT_FALSE(scaling.points[2].losses);
  EXPECT_FALSE(scaling.points[3].efficiency);
}

TEST(Scaling, TimeOutsideTheStepsIsASeparateLoss) {
  auto four = run_json(4, 64, kFourRanks);
  four["samples_per_second"] = 96;  // the steps alone would allow 128
  const Scaling scaling = analyze({run_of(run_json(1, 64, kOneRank)), run_of(four)});
  const Losses losses = *scaling.points[1].losses;
  EXPECT_DOUBLE_EQ(*scaling.points[1].efficiency, 0.375);
  EXPECT_NEAR(losses.outside, 0.125, 1e-12);
  EXPECT_NEAR(total(losses), 0.625, 1e-12);
}

TEST(Scaling, UnaccountedTimeIsASeparateLoss) {
  auto four = run_json(4, 64, {0, 0.0625, 0.15625, 0.0625, 0.125, 0, 0});
  four["step_seconds"]["mean"] = 0.5;
  four["samples_per_second"] = 128;
  const Scaling scaling = analyze({run_of(run_json(1, 64, kOneRank)), run_of(four)});
  EXPECT_NEAR(scaling.points[1].losses->unaccounted, 0.1875, 1e-12);
  EXPECT_NEAR(total(*scaling.points[1].losses), 0.5, 1e-12);
}

// Kept and lost fractions must always sum to 1.
TEST(Scaling, LossesAlwaysAddUp) {
  for (const double faster : {0.1, 0.5, 1.0, 3.0}) {
    std::vector<double> parts = kFourRanks;
    for (double& part : parts) part *= faster;
    for (const double batch : {16.0, 64.0, 100.0, 256.0}) {
      const Scaling scaling =
          analyze({run_of(run_json(1, 64, kOneRank)), run_of(run_json(4, batch, parts))});
      const ScalingPoint& point = scaling.points[1];
      EXPECT_NEAR(*point.efficiency + total(*point.losses), 1, 1e-12);
    }
  }
}

TEST(Scaling, GateNamesWorldSizesBelowTheMinimum) {
  const Scaling scaling = analyze({with_throughput(1, 100, ""), with_throughput(2, 190, ""),
                                   with_throughput(4, 300, ""), with_throughput(8, 700, "")});
  EXPECT_EQ(below(scaling, 0.7), std::vector<int>{});
  EXPECT_EQ(below(scaling, 0.8), std::vector<int>{4});
  EXPECT_EQ(below(scaling, 0.9), (std::vector<int>{4, 8}));
}

TEST(Scaling, GateDoesNotPassUnknownEfficiency) {
  EXPECT_EQ(
      below(analyze({with_throughput(1, 100, ""), with_throughput(2, std::nullopt, "")}), 0.1),
      std::vector<int>{2});
  EXPECT_EQ(below(analyze({with_throughput(4, 100, "")}), 0.1), std::vector<int>{4});
}

}  // namespace
}  // namespace ddp::report
