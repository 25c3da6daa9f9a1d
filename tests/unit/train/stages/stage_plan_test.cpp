// SPDX-License-Identifier: Apache-2.0
// Who is where in a pipeline, and what the report says about it.
#include "ddp_runtime/train/stages/stage_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/error_of.h"

namespace ddp::train {
namespace {

using pipeline::Schedule;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<PieceCost> six_pieces() {
  return {{"tokens", 60},   {"blocks.0", 20}, {"blocks.1", 20},
          {"blocks.2", 20}, {"blocks.3", 20}, {"norm", 60}};
}

TEST(StagePlan, BalancesParametersOrTimesOrTakesNumbers) {
  EXPECT_THAT(plan_stages({.ranks = 3}, six_pieces()).balance, ElementsAre(2, 3, 1));
  EXPECT_THAT(plan_stages({.ranks = 3, .balance = "2,2,2"}, six_pieces()).balance,
              ElementsAre(2, 2, 2));
  auto timed = six_pieces();
  for (auto& piece : timed) piece.seconds = piece.name == "norm" ? 0.5 : 0.1;
  const auto plan = plan_stages({.ranks = 2, .balance = "time"}, timed);
  EXPECT_THAT(plan.balance, ElementsAre(5, 1));
  EXPECT_THAT(plan.parameters_of_stages(), ElementsAre(140, 60));
  EXPECT_EQ(plan.stage_of(4), 0);
  EXPECT_EQ(plan.stage_of(5), 1);
  EXPECT_EQ(plan.first_piece(1), 5U);
  EXPECT_THAT(error_of([] { plan_stages({.ranks = 4, .chunks = 2}, six_pieces()); }),
              HasSubstr("6 pieces, which cannot be divided among 8 stages"));
}

TEST(StagePlan, RanksOfAPipelineFollowEachOther) {
  const StageOptions options{.ranks = 3};
  EXPECT_EQ(options.replica(2), 0);
  EXPECT_EQ(options.replica(3), 1);
  EXPECT_EQ(options.place(5), 2);
  EXPECT_EQ(options.replicas(6), 2);
  EXPECT_EQ(StageOptions().replicas(6), 6) << "every rank has samples of its own";
}

TEST(StagePlan, TableSaysWhoIsWhere) {
  const auto plan =
      plan_stages({.ranks = 2, .schedule = Schedule::interleaved, .chunks = 2}, six_pieces());
  const auto table = stage_table(plan, {"node1", "node1", "node2", "node2"});
  EXPECT_THAT(table, HasSubstr("\n  0      0,2          node1,node2              tokens          "
                               "                           60    30.0%\n"));
  EXPECT_THAT(table, HasSubstr("\n  1      1,3          node1,node2              blocks.0 to "));
  EXPECT_THAT(table, HasSubstr("\n  2      0,2 "));
  EXPECT_THAT(table, HasSubstr("\n  3      1,3 "));
}

TEST(StagePlan, WarnsOfTooFewMicroBatches) {
  const auto plan = plan_stages({.ranks = 4}, six_pieces());
  EXPECT_THAT(why_mostly_idle(plan, 4), IsEmpty());
  EXPECT_EQ(why_mostly_idle(plan, 2),
            "2 micro-batches in 4 stages leave the ranks idle for 60% of a step; use --accumulate "
            "16 or more");
}

TEST(StagePlan, ReportNamesABetterBalance) {
  const auto plan = plan_stages({.ranks = 3, .balance = "2,2,2"}, six_pieces());
  const StageTimesOfRun times{{3, 1, 1, 1, 1, 1}, {4, 2, 2}, {0, 2, 6}};
  const auto report = pipeline_of_report(plan, 9, times);
  EXPECT_EQ(report.at("stage_seconds"), nlohmann::json({4, 2, 2}));
  EXPECT_THAT(report.at("predicted_idle_share").get<double>(), DoubleNear(2.0 / 11, 1e-9));
  EXPECT_EQ(report.at("better").at("balance"), nlohmann::json({1, 3, 2}));
  EXPECT_LT(report.at("better").at("idle_share").get<double>(),
            report.at("idle_share_of_balance").get<double>());
  EXPECT_EQ(report.at("ranks").at(1).at("computing_share"), 0.5);
  EXPECT_EQ(report.at("ranks").at(2).at("waiting_share"), 0.75);
  const auto even = pipeline_of_report(plan, 9, {{1, 1, 1, 1, 1, 1}, {2, 2, 2}, {0, 0, 0}});
  EXPECT_TRUE(even.at("better").is_null());
}

// Before the first step, nothing is known.
TEST(StagePlan, ReportOfARunWithoutSteps) {
  const auto plan = plan_stages({.ranks = 3}, six_pieces());
  const auto report = pipeline_of_report(plan, 3, {{0, 0, 0, 0, 0, 0}, {0, 0, 0}, {0, 0, 0}});
  EXPECT_TRUE(report.at("better").is_null());
  EXPECT_EQ(report.at("ranks").at(0).at("waiting_share"), 0);
}

}  // namespace
}  // namespace ddp::train
