// SPDX-License-Identifier: Apache-2.0
// The stages of a pipeline in a report, and values that ddp-train does not write.
#include "ddp_runtime/report/sections/stages_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/report/collect.h"
#include "ddp_runtime/report/record/error.h"
#include "tests/unit/error_of.h"
#include "tests/unit/report/sample_runs.h"

namespace ddp::report {
namespace {

using nlohmann::json;
using test::run_json;
using test::run_of;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

json four_ranks() {
  return run_json(4, 64, test::kFourRanks);
}

// Two pipelines of two ranks with two stages each.
json pipeline_json() {
  return R"({"ranks_per_pipeline": 2,
             "pipelines": 2,
             "stages": 4,
             "schedule": "interleaved",
             "chunks": 2,
             "micro_batches": 8,
             "balance": [1, 1, 1, 3],
             "pieces": ["tokens", "blocks.0", "blocks.1", "blocks.2", "blocks.3", "norm"],
             "stage_parameters": [60, 20, 20, 100],
             "stage_seconds": [0.01, 0.02, 0.02, 0.05],
             "predicted_idle_share": 0.0625,
             "idle_share_of_balance": 0.4,
             "better": {"balance": [2, 1, 1, 2], "idle_share": 0.25},
             "ranks": [
               {"rank": 0, "first_stage": 0, "computing_share": 0.5, "waiting_share": 0.5},
               {"rank": 1, "first_stage": 1, "computing_share": 0.75, "waiting_share": 0.25},
               {"rank": 2, "first_stage": 0, "computing_share": 0.25, "waiting_share": 0.75},
               {"rank": 3, "first_stage": 1, "computing_share": 1, "waiting_share": 0}]})"_json;
}

Section stages_of(const json& pipeline) {
  auto run = four_ranks();
  run["pipeline"] = pipeline;
  return test::section_of(run_document(run_of(run), "p"), "stages");
}

TEST(StagesSection, NamesTheHeavyStageAndABetterBalance) {
  const auto section = stages_of(pipeline_json());
  EXPECT_THAT(section.paragraphs,
              ElementsAre("4 stages on 2 ranks, 8 micro-batches per step, schedule interleaved: "
                          "ranks are idle for 6.2 % of the time if all stages take the same, and "
                          "for 40.0 % with the times of these.",
                          "Stage 3 (blocks.2 to norm) is too heavy: it takes 2.00 times the mean "
                          "of all stages, and the others wait for it.",
                          "With --stage-balance 2,1,1,2, the ranks would be idle for 25.0 % of "
                          "the time instead of 40.0 %."));
  ASSERT_EQ(section.table.rows.size(), 4U);
  const auto& last = section.table.rows[3];
  ASSERT_EQ(last.size(), section.table.columns.size());
  EXPECT_EQ(last[1], Cell("blocks.2 to norm"));
  EXPECT_EQ(last[4], Cell(0.5));
  EXPECT_EQ(last[5], Cell(0.875)) << "of ranks 1 and 3";
  EXPECT_EQ(section.table.rows[0][6], Cell(0.625)) << "of ranks 0 and 2";
}

// Ranks have different work on purpose.
TEST(StagesSection, NoRankIsCalledSlow) {
  auto run = four_ranks();
  run["ranks"][3]["step_seconds"]["backward"] = 0.5;
  run["ranks"][3]["step_seconds"]["exposed_comm"] = 0;
  for (auto& rank : run["ranks"]) rank["step_seconds"].erase("mean");
  EXPECT_THAT(run_document(run_of(run), "p").verdict, HasSubstr("Rank 3"));
  run["pipeline"] = pipeline_json();
  const auto document = run_document(run_of(run), "p");
  EXPECT_THAT(document.verdict, Not(HasSubstr("Rank 3")));
  EXPECT_THAT(document.advice, HasSubstr("--stage-balance 2,1,1,2"));
}

TEST(StagesSection, SaysThatABalanceIsGood) {
  auto pipeline = pipeline_json();
  pipeline["stage_seconds"] = {0.02, 0.02, 0.02, 0.02};
  pipeline["better"] = nullptr;
  EXPECT_THAT(stages_of(pipeline).paragraphs, Contains("The stages take about the same time."));
  EXPECT_EQ(stages_of(pipeline).paragraphs.size(), 2U);
  pipeline["predicted_idle_share"] = 0.5;
  EXPECT_THAT(stages_of(pipeline).paragraphs, Contains(HasSubstr("more micro-batches")));
  pipeline["stage_seconds"] = {0, 0, 0, 0};  // no step
  EXPECT_EQ(stages_of(pipeline).table.rows[0][4], Cell());
}

TEST(StagesSection, IsLeftOutWithoutStages) {
  EXPECT_FALSE(run_of(four_ranks()).pipeline.has_value());
  EXPECT_EQ(stages_of(nullptr).id, "");
}

TEST(StagesSection, RefusesWhatNoRunWrites) {
  const std::pair<const char*, const char*> wrong[] = {
      {"ranks_per_pipeline", "0"},
      {"ranks_per_pipeline", R"("2")"},
      {"balance", "[1, 1, 1, 4]"},
      {"balance", "[]"},
      {"balance", "[1, 1, 1, 1, 1, 1, 1]"},
      {"pieces", "[1, 2, 3, 4, 5, 6]"},
      {"pieces", R"("tokens")"},
      {"stage_parameters", "[1]"},
      {"stage_seconds", "[0.1, -0.1, 0.1, 0.1]"},
      {"stage_seconds", R"(["a", "b", "c", "d"])"},
      {"predicted_idle_share", "1.5"},
      {"better", "{}"},
      {"better", R"({"balance": [0, 6], "idle_share": 0.1})"},
      {"ranks", "[]"},
      {"ranks", "[1, 2]"},
      {"schedule", "5"}};
  for (const auto& [key, value] : wrong) {
    auto run = four_ranks();
    run["pipeline"] = pipeline_json();
    run["pipeline"][key] = json::parse(value);
    EXPECT_THAT(error_of([&] { run_of(run); }), HasSubstr("'pipeline' of run.json"))
        << key << " " << value;
  }
  auto run = four_ranks();
  run["pipeline"] = 3;
  EXPECT_THAT(error_of([&] { run_of(run); }), HasSubstr("'pipeline' of run.json"));
}

}  // namespace
}  // namespace ddp::report
