// SPDX-License-Identifier: Apache-2.0
// The rank that the others wait for is named, and no other rank is.
#include "ddp_runtime/report/analysis/late_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "ddp_runtime/report/collect.h"
#include "ddp_runtime/report/render/render.h"
#include "tests/unit/report/sample_runs.h"

namespace ddp::report {
namespace {

using nlohmann::json;
using test::run_json;
using test::run_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// data, forward, backward, exposed_comm, optimizer, checkpoint, other
json seconds_of(const std::vector<double>& parts) {
  return run_json(1, 64, parts)["step_seconds"];
}

// Rank 7's backward takes 80 ms, the others' 30 ms. Uses the format from before waiting was
// measured.
json eight_ranks() {
  const std::vector<double> healthy{0.002, 0.02, 0.03, 0.055, 0.002, 0, 0};
  const std::vector<double> late{0.002, 0.02, 0.08, 0.005, 0.002, 0, 0};
  json run = run_json(8, 512, healthy);
  run["nodes"] = 8;
  for (int rank = 0; rank < 8; ++rank) run["ranks"][rank]["node"] = "n" + std::to_string(rank);
  run["ranks"][7]["step_seconds"] = seconds_of(late);
  for (auto& [key, value] : run["step_seconds"].items()) {
    value = 0.0;
    for (const auto& rank : run["ranks"]) {
      value = value.get<double>() + rank["step_seconds"][key].get<double>() / 8;
    }
  }
  return run;
}

TEST(LateRank, OneOfEightIsNamedWithItsNodeAndPhase) {
  const RunRecord run = run_of(eight_ranks());
  const auto cause = find_cause(run);
  ASSERT_TRUE(cause.late);
  EXPECT_THAT(cause.late->ranks, ElementsAre(7));
  EXPECT_EQ(cause.late->node, "n7");
  EXPECT_EQ(cause.late->phase, Phase::backward);
  EXPECT_NEAR(cause.late->seconds, 0.05, 1e-9);
  EXPECT_EQ(sentence_of(*cause.late),
            "Rank 7 on n7 arrives 50.0 ms later than the others in a step: backward takes 50.0 ms "
            "longer.");
}

TEST(LateRank, VerdictAdviceAndAllFormatsAgree) {
  const Document document = run_document(run_of(eight_ranks()), "p");
  EXPECT_THAT(document.verdict, HasSubstr("Rank 7 on n7 arrives 50.0 ms later"));
  EXPECT_THAT(document.verdict, HasSubstr("goes to waiting for other ranks: 40.1 %"));
  EXPECT_THAT(document.advice, HasSubstr("Check rank 7 on n7"));
  EXPECT_THAT(document.advice, Not(HasSubstr("ddp-check net")));
  const auto cause = to_json(document)["summary"]["cause"];
  EXPECT_EQ(cause["late_ranks"]["ranks"], json({7}));
  EXPECT_EQ(cause["late_ranks"]["node"], "n7");
  EXPECT_EQ(cause["late_ranks"]["phase"], "backward");
  EXPECT_TRUE(cause["shared_processors"].is_null());
  for (const auto& text : {to_markdown(document), to_html(document)}) {
    EXPECT_THAT(text, HasSubstr("Rank 7 on n7 arrives 50.0 ms later"));
    EXPECT_THAT(text, HasSubstr("Check rank 7 on n7"));
  }
}

TEST(LateRank, EachPhaseHasItsColumn) {
  const auto written = to_json(run_document(run_of(eight_ranks()), "p"));
  const auto& sections = written["sections"];
  const auto& row = sections[1]["table"]["rows"][0];
  EXPECT_EQ(sections[1]["id"], "ranks");
  EXPECT_NEAR(row["data"].get<double>(), 0.002, 1e-12);
  EXPECT_NEAR(row["forward"].get<double>(), 0.02, 1e-12);
  EXPECT_NEAR(row["backward"].get<double>(), 0.03, 1e-12);
  EXPECT_NEAR(row["waiting"].get<double>(), 0.05, 1e-12);
  EXPECT_NEAR(row["exposed_comm"].get<double>(), 0.005, 1e-12);
  EXPECT_NEAR(row["optimizer"].get<double>(), 0.002, 1e-12);
  EXPECT_EQ(row["checkpoint"], 0);
  EXPECT_EQ(row["other"], 0);
}

TEST(LateRank, SweepDoesNotBlameTheNetwork) {
  const auto base = run_of(run_json(1, 64, {0.002, 0.02, 0.03, 0, 0.002, 0, 0}));
  const Document document = sweep_document(analyze({base, run_of(eight_ranks())}), "p");
  EXPECT_THAT(document.verdict, HasSubstr("Rank 7 on n7 arrives"));
  EXPECT_THAT(document.verdict, HasSubstr("Biggest loss: waiting for other ranks"));
  EXPECT_THAT(document.advice, HasSubstr("Check rank 7 on n7"));
  EXPECT_EQ(document.summary["biggest_loss"], "waiting");
  EXPECT_EQ(document.summary["cause"]["late_ranks"]["phase"], "backward");
}

TEST(LateRank, IsFoundInEachPhase) {
  constexpr std::pair<int, Phase> kCases[] = {{0, Phase::data},       {1, Phase::forward},
                                              {2, Phase::backward},   {4, Phase::optimizer},
                                              {5, Phase::checkpoint}, {6, Phase::other}};
  for (const auto& [place, phase] : kCases) {
    std::vector<double> healthy{0.01, 0.01, 0.01, 0.06, 0.01, 0.01, 0.01};
    std::vector<double> late = healthy;
    late[static_cast<std::size_t>(place)] += 0.05;
    late[3] = 0.01;
    json run = run_json(4, 64, healthy);
    run["ranks"][0]["step_seconds"] = seconds_of(late);
    const auto cause = find_cause(run_of(run));
    ASSERT_TRUE(cause.late) << place;
    EXPECT_THAT(cause.late->ranks, ElementsAre(0));
    EXPECT_EQ(cause.late->phase, phase);
  }
}

TEST(LateRank, LateNodeIsNamedAsAWhole) {
  json run = run_json(8, 64, {0, 0.02, 0.03, 0.06, 0, 0, 0});
  for (int rank = 4; rank < 8; ++rank) {
    run["ranks"][rank]["node"] = "slow";
    run["ranks"][rank]["step_seconds"] = seconds_of({0, 0.04, 0.06, 0.01, 0, 0, 0});
  }
  const auto cause = find_cause(run_of(run));
  ASSERT_TRUE(cause.late);
  EXPECT_THAT(sentence_of(*cause.late), HasSubstr("4 ranks on slow arrive 50.0 ms later"));
}

TEST(LateRank, SlowNetworkWithEqualRanksNamesNoRank) {
  EXPECT_FALSE(find_cause(run_of(run_json(8, 64, {0, 0.02, 0.03, 0.5, 0, 0, 0}))).late);
  const Document document =
      run_document(run_of(run_json(8, 64, {0, 0.02, 0.03, 0.5, 0, 0, 0})), "p");
  EXPECT_THAT(document.verdict, HasSubstr("exposed communication"));
  EXPECT_THAT(document.advice, HasSubstr("ddp-check net"));
}

TEST(LateRank, MeasuredWaitingIsPartOfExposedCommunication) {
  json run = run_json(2, 64, {0, 0.02, 0.03, 0.05, 0, 0, 0});
  for (json* seconds :
       {&run["step_seconds"], &run["ranks"][0]["step_seconds"], &run["ranks"][1]["step_seconds"]}) {
    (*seconds)["waiting"] = 0.02;
  }
  const RunRecord record = run_of(run);
  EXPECT_FALSE(record.waiting_estimated);
  EXPECT_NEAR(record.step.part(Phase::waiting), 0.02, 1e-12);
  EXPECT_NEAR(record.step.part(Phase::exposed_comm), 0.03, 1e-12);
  EXPECT_FALSE(record.step.unaccounted());
  EXPECT_FALSE(find_cause(record).late) << "each rank waits for the other in turn";
}

// ---- made-up runs: ranks that compute with noise and meet in one collective per step

struct Made {
  int ranks = 4;
  int steps = 100;
  std::function<double(std::mt19937&, int rank)> compute;
};

// `measured`: use the format of a run that has compared its steps.
json make_run(const Made& made, std::mt19937& random, bool measured) {
  constexpr double kWire = 0.01;
  const auto count = static_cast<std::size_t>(made.ranks);
  std::vector<double> compute(count);
  std::vector<double> waiting(count);
  std::vector<int> late(count);
  std::vector<double> steps;
  for (int step = 0; step < made.steps; ++step) {
    std::vector<double> arrival;
    for (int rank = 0; rank < made.ranks; ++rank) arrival.push_back(made.compute(random, rank));
    const double last = *std::max_element(arrival.begin(), arrival.end());
    double mean = 0;
    for (const double at : arrival) mean += (last - at) / made.ranks;
    for (std::size_t r = 0; r < count; ++r) {
      compute[r] += arrival[r] / made.steps;
      waiting[r] += (last - arrival[r]) / made.steps;
      late[r] += last - arrival[r] < mean ? 1 : 0;
    }
    steps.push_back(last + kWire);
  }
  std::sort(steps.begin(), steps.end());
  json run = run_json(made.ranks, 64, {0, 0, 0, 0, 0, 0, 0});
  json sum = seconds_of({0, 0, 0, 0, 0, 0, 0});
  for (std::size_t r = 0; r < count; ++r) {
    json seconds = seconds_of({0, 0, compute[r], waiting[r] + kWire, 0, 0, 0});
    if (measured) seconds["waiting"] = waiting[r];
    for (const auto& [key, value] : seconds.items()) {
      sum[key] = sum.value(key, 0.0) + value.get<double>() / made.ranks;
    }
    auto& rank = run["ranks"][r];
    rank["step_seconds"] = seconds;
    if (!measured) continue;
    rank["compared_steps"] = made.steps;
    rank["late_share"] = static_cast<double>(late[r]) / made.steps;
  }
  sum["p50"] = steps[steps.size() / 2];
  sum["p95"] = steps[steps.size() * 95 / 100];
  run["step_seconds"] = sum;
  run["steps"] = made.steps;
  return run;
}

double gauss(std::mt19937& random, double deviation) {
  return std::max(0.01, 0.1 * (1 + std::normal_distribution<double>(0, deviation)(random)));
}

double with_bursts(std::mt19937& random) {
  const bool taken = std::uniform_real_distribution<double>(0, 1)(random) < 0.05;
  return gauss(random, 0.05) + (taken ? std::exponential_distribution<double>(10)(random) : 0);
}

TEST(LateRank, HealthyNoisyRunsNameNoRank) {
  std::mt19937 random(7);
  std::vector<std::string> named;
  for (int run = 0; run < 300; ++run) {
    Made made;
    made.ranks = 2 + static_cast<int>(random() % 15);
    made.steps = 10 + static_cast<int>(random() % 300);
    const double deviation = 0.05 * static_cast<double>(1 + random() % 8);
    made.compute = [deviation, bursts = run % 3 == 0](std::mt19937& r, int) {
      return bursts ? with_bursts(r) : gauss(r, deviation);
    };
    for (const bool measured : {true, false}) {
      const auto cause = find_cause(run_of(make_run(made, random, measured)));
      if (!cause.late) continue;
      named.push_back(std::to_string(made.ranks) + " ranks, " + std::to_string(made.steps) +
                      " steps, measured " + std::to_string(static_cast<int>(measured)) + ": " +
                      sentence_of(*cause.late));
    }
  }
  EXPECT_THAT(named, testing::IsEmpty());
}

TEST(LateRank, ConsistentlyLateRankIsNamedDespiteNoise) {
  std::mt19937 random(8);
  for (int run = 0; run < 200; ++run) {
    Made made;
    made.ranks = 2 + static_cast<int>(random() % 15);
    made.steps = 100 + static_cast<int>(random() % 300);
    const int who = static_cast<int>(random() % static_cast<unsigned>(made.ranks));
    made.compute = [who](std::mt19937& r, int rank) {
      return gauss(r, 0.1) + (rank == who ? 0.05 : 0);
    };
    for (const bool measured : {true, false}) {
      const auto cause = find_cause(run_of(make_run(made, random, measured)));
      ASSERT_TRUE(cause.late) << made.ranks << " ranks, " << made.steps << " steps, " << measured;
      EXPECT_THAT(cause.late->ranks, ElementsAre(who));
      EXPECT_EQ(cause.late->phase, Phase::backward);
    }
  }
}

// ---- CPUs

json on_processors(const std::vector<std::string>& lists, int threads = 1) {
  json run = run_json(static_cast<int>(lists.size()), 64, {0, 0.02, 0.03, 0.05, 0, 0, 0});
  for (std::size_t r = 0; r < lists.size(); ++r) {
    run["ranks"][r]["cpu_list"] = lists[r];
    run["ranks"][r]["threads"] = threads;
  }
  return run;
}

std::string shared_by(const json& run) {
  const auto cause = find_cause(run_of(run));
  return cause.shared ? sentence_of(*cause.shared) : "";
}

TEST(SharedProcessors, AreTheFirstCause) {
  const auto run = on_processors({"0-1", "0-1", "0-1", "0-1"});
  EXPECT_EQ(shared_by(run), "4 ranks share 2 CPUs on node1.");
  const Document document = run_document(run_of(run), "p");
  EXPECT_THAT(document.verdict, HasSubstr("4 ranks share 2 CPUs on node1."));
  EXPECT_THAT(document.advice, HasSubstr("Give each rank its own CPU"));
  EXPECT_EQ(document.summary["cause"]["shared_processors"]["processors"], 2);
  const auto base = run_of(run_json(1, 64, {0, 0.02, 0.03, 0, 0, 0, 0}));
  const Document sweep = sweep_document(analyze({base, run_of(run)}), "p");
  EXPECT_THAT(sweep.verdict, HasSubstr("4 ranks share 2 CPUs on node1."));
  EXPECT_LT(sweep.verdict.find("share"), sweep.verdict.find("Biggest loss"));
  EXPECT_THAT(sweep.advice, HasSubstr("Give each rank its own CPU"));
}

TEST(SharedProcessors, AreCountedPerMaskAndNode) {
  EXPECT_EQ(shared_by(on_processors({"0", "1", "2", "3"})), "");
  EXPECT_EQ(shared_by(on_processors({"0-3", "0-3", "0-3", "0-3"})), "");
  EXPECT_EQ(shared_by(on_processors({"0", "0", "2", "3-9"})), "2 ranks share 1 CPU on node1.");
  EXPECT_EQ(shared_by(on_processors({"0-1", "0", "1", "8"})), "3 ranks share 2 CPUs on node1.");
  auto elsewhere = on_processors({"0", "0"});
  elsewhere["ranks"][1]["node"] = "node2";
  EXPECT_EQ(shared_by(elsewhere), "");
  EXPECT_EQ(shared_by(on_processors({"0-1", "0-1"}, 2)),
            "2 ranks with 4 threads together share 2 CPUs on node1.");
  EXPECT_EQ(shared_by(on_processors({"0-3", "0-3"}, 2)), "");
}

TEST(SharedProcessors, InvalidListsAreIgnored) {
  for (const char* list : {"", "x", "3-1", "1-", "0,0", "5,3", "0-99999999", "-1", "1,,2"}) {
    EXPECT_EQ(shared_by(on_processors({list, list})), "") << list;
  }
}

}  // namespace
}  // namespace ddp::report
