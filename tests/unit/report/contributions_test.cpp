// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/contributions.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/report/document/waterfall.h"
#include "tests/unit/report/sample_runs.h"

namespace ddp::report {
namespace {

using test::run_json;
using test::run_of;

ScalingPoint group_of(const std::vector<nlohmann::json>& runs) {
  std::vector<RunRecord> records;
  for (const auto& run : runs) records.push_back(run_of(run));
  return analyze(records).points.front();
}

double part_of(const std::vector<Contribution>& list, const std::string& kind) {
  const auto found = std::find_if(list.begin(), list.end(),
                                  [&](const Contribution& one) { return one.kind == kind; });
  return found == list.end() ? std::nan("") : found->part;
}

// Six ranks of which the fifth takes `late` seconds longer in backward, while the others wait.
nlohmann::json with_late_rank(double data, double late) {
  auto run = run_json(6, 96, {data, 0.3, 0.4 + late / 6, 0.1 + late * 5 / 6, 0, 0, 0});
  for (int rank = 0; rank < 6; ++rank) {
    auto& seconds = run["ranks"][static_cast<std::size_t>(rank)]["step_seconds"];
    const double own = rank == 5 ? late : 0;
    seconds["backward"] = 0.4 + own;
    seconds["waiting"] = late - own;
    seconds["exposed_comm"] = 0.1 + late - own;
    run["ranks"][static_cast<std::size_t>(rank)]["compared_steps"] = 400;
    run["ranks"][static_cast<std::size_t>(rank)]["late_share"] = rank == 5 && late > 0 ? 0.99 : 0.1;
  }
  run["ranks"][5]["node"] = "n5";
  run["step_seconds"]["waiting"] = late * 5 / 6;
  return run;
}

TEST(Contributions, NameTheRankThatIsWaitedFor) {
  const auto before = group_of({with_late_rank(0.2, 0), with_late_rank(0.201, 0)});
  const auto after = group_of({with_late_rank(0.23, 0.12), with_late_rank(0.231, 0.12)});
  const auto list = contributions(before, after);
  EXPECT_EQ(sentence_of(list), "+10.0 % waiting for rank 5 on n5, +3.0 % data, +2.0 % backward");
  EXPECT_EQ(sentence_of(contributions(after, before)),
            "-8.7 % waiting for rank 5 on n5, -2.6 % data, -1.7 % backward");
}

// The name of one run in three is not that of the group.
TEST(Contributions, RankOfFewRunsIsNotNamed) {
  const auto before = group_of({with_late_rank(0.2, 0), with_late_rank(0.2, 0)});
  const auto after =
      group_of({with_late_rank(0.2, 0.5), with_late_rank(0.2, 0), with_late_rank(0.2, 0)});
  for (const auto& one : contributions(before, after)) {
    EXPECT_EQ(one.who, "");
  }
}

// Ranks take turns, and rank 5 is a little late besides, in both groups.
TEST(Contributions, RankIsNamedOnlyIfTheWaitingIsDueToIt) {
  const auto turns = [](double late, double waiting) {
    auto run = with_late_rank(0.2, late);
    const auto add = [waiting](nlohmann::json& seconds, const char* key) {
      seconds[key] = seconds[key].get<double>() + waiting;
    };
    for (auto& rank : run["ranks"]) {
      add(rank["step_seconds"], "waiting");
      add(rank["step_seconds"], "exposed_comm");
    }
    add(run["step_seconds"], "waiting");
    add(run["step_seconds"], "exposed_comm");
    add(run["step_seconds"], "mean");
    return run;
  };
  const auto name_of_waiting = [](const ScalingPoint& a, const ScalingPoint& b) {
    for (const auto& one : contributions(a, b)) {
      if (one.kind == "waiting") return one.full_name();
    }
    return std::string();
  };
  const auto before = group_of({turns(0, 0.01)});
  EXPECT_EQ(name_of_waiting(before, group_of({turns(0.12, 0.3)})), "waiting for other ranks");
  EXPECT_EQ(name_of_waiting(before, group_of({turns(0.12, 0.01)})), "waiting for rank 5 on n5");
  EXPECT_EQ(name_of_waiting(group_of({turns(0.12, 0.01)}), group_of({turns(0.12, 0.2)})),
            "waiting for other ranks")
      << "it is as late in A as in B";
}

// What a run does not record is not zero.
TEST(Contributions, UnrecordedPhasesAreNotCompared) {
  const auto run = run_json(2, 64, {0.1, 0.3, 0.4, 0.2, 0, 0, 0});
  auto waits = run;
  waits["step_seconds"]["waiting"] = 0.1;
  for (const auto& one : contributions(group_of({run}), group_of({waits}))) {
    EXPECT_NEAR(one.part, 0, 1e-12) << one.kind;
    EXPECT_NE(one.kind, "waiting");
  }
  auto unknown = run;
  unknown["step_seconds"]["data"] = nullptr;
  const auto list = contributions(group_of({unknown}), group_of({run}));
  EXPECT_TRUE(std::isnan(part_of(list, "data")));
  EXPECT_NEAR(part_of(list, "unaccounted"), 0, 1e-12);
  EXPECT_EQ(sentence_of(list), "");
}

TEST(Contributions, UnaccountedTimeHasNoThreshold) {
  const auto with_mean = [](double mean) {
    auto run = run_json(2, 64, {0.1, 0.3, 0.4, 0.2, 0, 0, 0});
    run["step_seconds"]["mean"] = mean;
    return group_of({run});
  };
  const auto list = contributions(with_mean(1.0098), with_mean(1.0102));
  EXPECT_NEAR(part_of(list, "unaccounted"), 0.0004 / 1.0098, 1e-9);
  EXPECT_EQ(sentence_of(list), "");
}

TEST(Contributions, SumToTheChangeOfTheTimePerSample) {
  // Twice the batch per rank: the same time per sample would be a step of 2 s.
  const auto a = group_of({run_json(2, 64, {0.1, 0.3, 0.4, 0.1, 0.1, 0, 0})});
  const auto b = group_of({run_json(4, 256, {0.3, 0.6, 0.9, 0.5, 0.1, 0, 0})});
  const auto list = contributions(a, b);
  double sum = 0;
  for (const auto& one : list) {
    sum += one.part;
    EXPECT_FALSE(one.interval) << "one run does not show any noise";
  }
  EXPECT_NEAR(sum, 0.2, 1e-12);
  EXPECT_NEAR(part_of(list, "exposed_comm"), 0.15, 1e-12);
  EXPECT_NEAR(part_of(list, "optimizer"), -0.05, 1e-12);
  EXPECT_EQ(list.front().kind, "exposed_comm");
  EXPECT_EQ(sentence_of({list[0]}), "+15.0 % exposed communication");
}

TEST(Contributions, TakeABatchSize) {
  const auto known = group_of({run_json(2, 64, {0.1, 0.3, 0.4, 0.1, 0.1, 0, 0})});
  auto unknown = run_json(2, 64, {0.1, 0.3, 0.4, 0.1, 0.1, 0, 0});
  unknown["global_batch"] = nullptr;
  EXPECT_TRUE(contributions(known, group_of({unknown})).empty());
  EXPECT_TRUE(contributions(group_of({unknown}), known).empty());
  EXPECT_FALSE(contributions(known, known).empty());
}

// Phases of some runs on each side, with noise that the phases of a run share, and their own.
class ContributionsOfNoisyRuns : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(ContributionsOfNoisyRuns, HaveIntervalsWithTheTruth) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> noise(0, 0.02);
  const auto run = run_of(run_json(2, 64, {1, 1, 1, 0, 0, 0, 0}));
  const auto group = [&](double data, int count) {
    std::vector<RunRecord> runs(static_cast<std::size_t>(count), run);
    for (auto& one : runs) {
      const double all = std::exp(noise(random));
      auto& parts = one.step.parts;
      parts[index_of(Phase::data)] = data * all * std::exp(noise(random));
      parts[index_of(Phase::forward)] = 0.3 * all;
      parts[index_of(Phase::backward)] = 0.5 * all * std::exp(noise(random));
      one.step.mean = *parts[0] + *parts[1] + *parts[2];
      one.samples_per_second = 64 / *one.step.mean;
    }
    return analyze(runs).points.front();
  };
  const auto sizes = GetParam();
  constexpr int kPairs = 1000;
  int covered = 0;
  int told = 0;
  int false_alarms = 0;
  for (int i = 0; i < kPairs; ++i) {
    const auto list = contributions(group(0.2, sizes.first), group(0.3, sizes.second));
    for (const auto& one : list) {
      if (one.kind == "data") {
        told += one.is_worth_telling() ? 1 : 0;
        covered += one.interval->contains(0.1) ? 1 : 0;
      } else {
        false_alarms += one.is_worth_telling() ? 1 : 0;
      }
    }
  }
  EXPECT_NEAR(covered, 0.98 * kPairs, 0.015 * kPairs);
  EXPECT_GE(told, 0.9 * kPairs);
  EXPECT_LE(false_alarms, 0.05 * kPairs);  // of two other phases
}

INSTANTIATE_TEST_SUITE_P(Sizes, ContributionsOfNoisyRuns,
                         testing::Values(std::pair(5, 5), std::pair(3, 3), std::pair(2, 8),
                                         std::pair(8, 2), std::pair(1, 5)));

// With three runs in all, chance is unknown, and nothing is told.
TEST(Contributions, UnknownNoiseIsNotTold) {
  const auto a = run_json(2, 64, {0.1, 0.3, 0.4, 0.2, 0, 0, 0});
  const auto b = run_json(2, 64, {0.3, 0.3, 0.4, 0.2, 0, 0, 0});
  EXPECT_EQ(sentence_of(contributions(group_of({a}), group_of({b}))), "+20.0 % data");
  EXPECT_EQ(sentence_of(contributions(group_of({a}), group_of({b, b}))), "");
}

TEST(Waterfall, BarsBeginWhereThePreviousOneEnds) {
  const auto bars = waterfall({"kept", "A", 1, "1"},
                              {{"data", "data", 0.5, "+0.5"},
                               {"other", "other", 0.0001, "tiny"},
                               {"forward", "forward", -0.7, "-0.7"}},
                              {"kept", "B", 0.8001, "0.8"});
  ASSERT_EQ(bars.size(), 4U) << "the tiny change has no bar";
  EXPECT_DOUBLE_EQ(bars[1].begin, 1);
  EXPECT_DOUBLE_EQ(bars[1].segments[0].value, 0.5);
  EXPECT_NEAR(bars[2].begin, 0.8001, 1e-12);  // it ends at 1.5001
  EXPECT_DOUBLE_EQ(bars[2].segments[0].value, 0.7);
  EXPECT_EQ(bars[3].begin, 0);
  EXPECT_DOUBLE_EQ(bars[3].segments[0].value, 0.8001);
}

}  // namespace
}  // namespace ddp::report
