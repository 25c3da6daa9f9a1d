// SPDX-License-Identifier: Apache-2.0
// Where the time of a run under ddp-run went, in reports, and values that ddp-run does not write.
#include "ddp_runtime/report/sections/resilience_section.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/report/collect.h"
#include "ddp_runtime/report/record/error.h"
#include "ddp_runtime/report/render/render.h"
#include "tests/unit/error_of.h"
#include "tests/unit/report/sample_runs.h"

namespace ddp::report {
namespace {

using nlohmann::json;
using test::section_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Each use takes 0 s, except those that are given.
json uses_json(const std::vector<std::pair<std::string, double>>& some) {
  json uses = json::object();
  for (const auto& use : kUsesOfTime) uses[std::string(use.key)] = 0.0;
  for (const auto& [use, seconds] : some) uses[use] = seconds;
  return uses;
}

json generation_json(int number, const json& seconds) {
  auto generation = R"({"nodes": 4,
                        "world_size": 8,
                        "begun": 0,
                        "restored_from": "disk@10",
                        "failed": true,
                        "why_ended": "n1: rank 3: <signal 9>",
                        "blamed": ["n1", "n2"],
                        "detected_after": 0.5,
                        "recovered_after": null})"_json;
  generation["number"] = generation["generation"] = generation["steps_repeated"] = number;
  generation["from_step"] = 10 * number;
  generation["to_step"] = 10 * number + 9;
  generation["seconds"] = seconds;
  return generation;
}

json resilience_json() {
  auto resilience = R"({"schema": "slurm-ddp/resilience/1",
                        "wall_seconds": 200,
                        "productive_seconds": 75,
                        "ettr": 0.75,
                        "jobs": 2,
                        "faults": 1,
                        "mtti_seconds": 100,
                        "checkpoints": {"interval_seconds": 30, "young_interval_seconds": 20},
                        "generations_in_all": 2})"_json;
  auto& lost = resilience["lost"] = uses_json({{"launch", 10}, {"repeat", 15}, {"queue", 100}});
  lost.erase("productive");
  resilience["seconds_of_older_generations"] = uses_json({});
  resilience["seconds_after_the_last"] = uses_json({{"queue", 100}});
  resilience["generations"] = {
      generation_json(1, uses_json({{"launch", 5}, {"productive", 25}, {"repeat", 15}})),
      generation_json(2, uses_json({{"launch", 5}, {"productive", 50}}))};
  return resilience;
}

RunRecord run_with(const json& resilience) {
  auto run = test::run_json(4, 64, test::kFourRanks);
  run["resilience"] = resilience;
  return test::run_of(run);
}

TEST(ResilienceSection, SaysWhereTheTimeWent) {
  const auto section = section_of(run_document(run_with(resilience_json()), "p"), "resilience");
  EXPECT_THAT(
      section.paragraphs,
      ElementsAre("2 generations in 2 jobs: 1 failure in 3.33 min. Without the queue, 75.0 % "
                  "of the time made progress (ETTR). The mean time between failures was "
                  "100 s.",
                  "There was a checkpoint each 30.0 s. By Young's formula, with the measured "
                  "failures and costs, 20.0 s is best."));
  ASSERT_EQ(section.table.rows.size(), kUsesOfTime.size());
  EXPECT_EQ(section.table.rows[0], (std::vector<Cell>{"queue", 100.0, 0.5}));
  EXPECT_EQ(section.table.rows[1], (std::vector<Cell>{"productive steps", 75.0, 0.375}));
  double shares = 0;
  for (const auto& row : section.table.rows) shares += std::get<double>(row[2]);
  EXPECT_DOUBLE_EQ(shares, 1);
}

TEST(ResilienceSection, ListsTheGenerations) {
  const auto section = section_of(run_document(run_with(resilience_json()), "p"), "generations");
  ASSERT_EQ(section.table.rows.size(), 2U);
  for (const auto& row : section.table.rows) EXPECT_EQ(row.size(), section.table.columns.size());
  EXPECT_EQ(section.table.rows[0][8], Cell(45.0));
  EXPECT_EQ(section.table.rows[1][7], Cell(2.0));
  EXPECT_EQ(section.table.rows[1][10], Cell("n1, n2"));
}

TEST(ResilienceSection, OfManyGenerationsTheLastAreShown) {
  auto resilience = resilience_json();
  for (int number = 3; number <= 1000; ++number) {
    resilience["generations"].push_back(generation_json(number, uses_json({{"productive", 1}})));
  }
  resilience["generations_in_all"] = 5000;
  const auto document = run_document(run_with(resilience), "p");
  const auto section = section_of(document, "generations");
  EXPECT_THAT(section.paragraphs, ElementsAre("The last 100 of 5000."));
  EXPECT_EQ(section.table.rows.back()[0], Cell(1000.0));
  const auto resilience_charts = section_of(document, "resilience").charts;
  const auto& chart = std::get<StripChart>(resilience_charts.front());
  EXPECT_LE(chart.parts.size(), 201U);
  EXPECT_EQ(chart.parts.front().mark, "5 failures");
  double seconds = 0;
  for (const auto& part : chart.parts) {
    for (const auto& segment : part.segments) seconds += segment.value;
  }
  EXPECT_DOUBLE_EQ(seconds, 45 + 55 + 998 + 100);
}

TEST(ResilienceSection, IsInAllFormats) {
  const auto document = run_document(run_with(resilience_json()), "p");
  const auto html = to_html(document);
  EXPECT_THAT(html, HasSubstr("class=\"seg k-use-repeat\""));
  EXPECT_THAT(html, HasSubstr("<path class=\"mark\""));
  EXPECT_THAT(html, HasSubstr("n1: rank 3: &lt;signal 9&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("<signal 9>")));
  EXPECT_THAT(to_markdown(document), HasSubstr("Where the time of the run went"));
  const auto object = to_json(document);
  EXPECT_EQ(object.at("summary").at("ettr"), 0.75);
  EXPECT_EQ(object.at("summary").at("faults"), 1);
}

TEST(ResilienceSection, OfTwoRunsTheRatiosAreCompared) {
  auto better = resilience_json();
  better["ettr"] = 0.9;
  const auto document = compare_document(run_with(resilience_json()), run_with(better), "p");
  EXPECT_THAT(document.verdict,
              HasSubstr("B made progress in 90.0 % of its time (ETTR), A in 75.0 %."));
  const auto rows = section_of(document, "differences").table.rows;
  const auto row =
      std::ranges::find(rows, Cell("resilience.ettr"), [](const auto& r) { return r[0]; });
  ASSERT_NE(row, rows.end());
  EXPECT_EQ((*row)[1], Cell(0.75));
  EXPECT_EQ((*row)[2], Cell(0.9));
  // One run without: no sentence.
  auto plain = run_with(better);
  plain.resilience.reset();
  EXPECT_THAT(compare_document(plain, run_with(better), "p").verdict, Not(HasSubstr("ETTR")));
}

TEST(ResilienceSection, RefusesWhatDdpRunDoesNotWrite) {
  const std::pair<const char*, const char*> wrong[] = {
      {"/schema", R"("slurm-ddp/resilience/2")"},
      {"/schema", "null"},
      {"/ettr", "1.5"},
      {"/ettr", R"("high")"},
      {"/wall_seconds", "-1"},
      {"/wall_seconds", "null"},
      {"/lost", "[]"},
      {"/lost/repeat", "1e300"},
      {"/generations", "7"},
      {"/generations/0/nodes", R"("four")"},
      {"/generations/0/blamed/0", "7"},
      {"/generations/0/seconds/productive", "null"},
      {"/checkpoints", "null"}};
  for (const auto& [path, value] : wrong) {
    auto resilience = resilience_json();
    resilience[json::json_pointer(path)] = json::parse(value);
    EXPECT_THAT(error_of([&] { run_with(resilience); }), HasSubstr("'resilience' of run.json"))
        << path;
  }
  EXPECT_FALSE(run_with(nullptr).resilience);
}

}  // namespace
}  // namespace ddp::report
