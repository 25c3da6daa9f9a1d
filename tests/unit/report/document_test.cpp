// SPDX-License-Identifier: Apache-2.0
// The content of the documents, and rendering with unusual figures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

#include "ddp_runtime/report/analysis/named_losses.h"
#include "ddp_runtime/report/collect.h"
#include "ddp_runtime/report/render/render.h"
#include "ddp_runtime/report/render/svg.h"
#include "tests/unit/report/sample_runs.h"

namespace ddp::report {
namespace {

using test::kFourRanks;
using test::kOneRank;
using test::run_json;
using test::run_of;
using test::section_of;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

Document sweep(const std::vector<nlohmann::json>& runs) {
  std::vector<RunRecord> records;
  for (const auto& run : runs) records.push_back(run_of(run));
  return sweep_document(analyze(records), "ddp-report test");
}

Document strong_document() {
  return sweep({run_json(1, 64, kOneRank), run_json(4, 64, kFourRanks)});
}

TEST(SweepDocument, VerdictHasTheFigureAndTheReason) {
  const Document document = strong_document();
  EXPECT_EQ(document.title, "Scaling of mlp on digits");
  EXPECT_EQ(document.verdict,
            "Strong scaling from 1 to 4 ranks: 50.0 % efficiency. Biggest loss: exposed "
            "communication, 25.0 % of the ideal.");
  EXPECT_THAT(document.advice, HasSubstr("ddp-check net"));
  auto expected = R"({"scaling": "strong",
                      "base_world_size": 1,
                      "largest_world_size": 4,
                      "speedup": 2.0,
                      "efficiency": 0.5,
                      "biggest_loss": "exposed_comm",
                      "not_distinguishable_from": null,
                      "noise": null})"_json;
  for (const char* key : {"biggest_loss_part", "cause"}) expected[key] = document.summary[key];
  EXPECT_EQ(document.summary, expected);
  EXPECT_NEAR(document.summary["biggest_loss_part"].get<double>(), 0.25, 1e-12);
}

TEST(SweepDocument, SpreadIsReportedIfKnown) {
  auto slower = run_json(4, 64, kFourRanks);
  slower["samples_per_second"] = 120;
  const Document document = sweep({run_json(1, 64, kOneRank), run_json(4, 64, kFourRanks), slower});
  EXPECT_THAT(document.verdict, HasSubstr("46.9 % efficiency. "));
  EXPECT_THAT(
      document.cautions,
      testing::ElementsAre("Too few runs were repeated to know the noise, so the efficiencies "
                           "have no interval.",
                           HasSubstr("With 4 ranks there are only two runs, and the report shows "
                                     "the slower one; a third run")));
  const Document more = sweep(
      {run_json(1, 64, kOneRank), run_json(1, 64, kOneRank), run_json(4, 64, kFourRanks), slower});
  // The logarithms are 0.03227 from their mean, which is the deviation for 2 degrees of freedom.
  EXPECT_THAT(more.verdict, HasSubstr("46.9 % efficiency (90 % interval: 44.1 % to 53.2 %, 4 runs "
                                      "including the base's). "));
  EXPECT_NEAR(more.summary["noise"].get<double>(), std::expm1(0.03227), 1e-4);
}

// The optimizer and the communication, of which each run has more of one.
TEST(SweepDocument, LossesThatNoiseHidesAreNotRanked) {
  const auto four = [](double comm, double optimizer) {
    return run_json(4, 64, {0, 0.0625, 0.15625, comm, optimizer, 0, 0});
  };
  const Document document = sweep({run_json(1, 64, kOneRank), run_json(1, 64, kOneRank),
                                   four(0.10, 0.14), four(0.14, 0.13), four(0.12, 0.16)});
  EXPECT_THAT(document.verdict,
              HasSubstr("The biggest losses cannot be distinguished: exposed communication ("));
  EXPECT_THAT(document.verdict, HasSubstr(" and optimizer ("));
  EXPECT_THAT(document.advice, HasSubstr("Repeat the runs"));
  EXPECT_EQ(document.summary["not_distinguishable_from"], "optimizer");
}

TEST(SweepDocument, CautionsAgainstComparingDifferentRuns) {
  auto other = run_json(4, 64, kFourRanks);
  other["device"] = "cuda";
  EXPECT_THAT(
      sweep({run_json(1, 64, kOneRank), other}).cautions,
      Contains("The runs differ in device (cpu, cuda), so they are not directly comparable."));
  // A single rank does not use a backend.
  EXPECT_THAT(
      strong_document().cautions,
      testing::ElementsAre("Each number of ranks was run only once, so the spread is unknown."));
  EXPECT_THAT(sweep({run_json(1, 64, kOneRank), run_json(4, 100, kFourRanks)}).cautions,
              Contains(HasSubstr("Neither the global batch nor the batch per rank")));
  auto gap = run_json(4, 64, kFourRanks);
  gap["step_seconds"]["mean"] = 0.7;
  EXPECT_THAT(sweep({run_json(1, 64, kOneRank), gap}).cautions,
              Contains(HasSubstr("With 4 ranks, the parts of a step do not sum")));
}

TEST(SweepDocument, RunsWithDifferentWorkloadsHaveNoSpeedup) {
  auto other = run_json(4, 64, kFourRanks);
  other["model"] = "cnn";
  const Document document = sweep({run_json(1, 64, kOneRank), other});
  EXPECT_EQ(document.title, "Runs with different workloads");
  EXPECT_EQ(document.verdict, "The runs differ in model: scaling cannot be computed.");
  EXPECT_EQ(document.advice, "");
  EXPECT_THAT(document.figures, IsEmpty());
  std::vector<std::string> ids;
  for (const auto& s : document.sections) ids.push_back(s.id);
  EXPECT_THAT(ids, testing::ElementsAre("step", "runs"));
}

TEST(SweepDocument, NoisyStepsAndTimeOutsideTheStepsAreReported) {
  auto noisy = run_json(4, 64, kFourRanks);
  noisy["step_seconds"]["p95"] = 1.1;
  noisy["wall_seconds"] = R"({"total": 100, "startup": 20, "steps": 70, "evaluation": 6,
                              "checkpoint": 3, "rest": 1})"_json;
  const Document document = sweep({run_json(1, 64, kOneRank), noisy});
  EXPECT_THAT(document.cautions, Contains(HasSubstr("With 4 ranks, step times vary widely")));
  EXPECT_THAT(document.cautions,
              Contains("30.0 % of the wall time with 4 ranks was outside of the steps."));
  const auto wall = section_of(document, "wall").table;
  ASSERT_EQ(wall.rows.size(), 1U) << "only one run has recorded its wall time";
  double sum = 0;
  for (std::size_t i = 3; i < wall.rows[0].size(); ++i) sum += std::get<double>(wall.rows[0][i]);
  EXPECT_NEAR(sum, 1, 1e-12);
}

// 200 % kept, 25 % lost to communication: the gain must be drawn below zero.
TEST(SweepDocument, LossBarEndsAtTheIdeal) {
  const Document document =
      sweep({run_json(1, 64, kOneRank), run_json(4, 64, {0, 0.025, 0.05, 0.025, 0.025, 0, 0})});
  const auto bar = std::get<BarChart>(section_of(document, "loss").charts[0]).bars[0];
  double end = bar.begin;
  for (const auto& segment : bar.segments) end += segment.value;
  EXPECT_NEAR(end, 1, 1e-9);
  EXPECT_LT(bar.begin, 0);
  // The same as a waterfall, from the ideal to what was kept, by way of more than the ideal.
  const auto steps = std::get<BarChart>(section_of(document, "loss").charts[1]).bars;
  EXPECT_EQ(steps.front().total, "100.0 %");
  EXPECT_EQ(steps.back().total, "200.0 %");
  for (std::size_t i = 1; i + 1 < steps.size(); ++i) {
    const double before = i == 1 ? 1
                          : steps[i - 1].total[0] == '-'
                              ? steps[i - 1].begin
                              : steps[i - 1].begin + steps[i - 1].segments[0].value;
    const double at =
        steps[i].total[0] == '-' ? steps[i].begin + steps[i].segments[0].value : steps[i].begin;
    EXPECT_NEAR(at, before, 1e-9) << steps[i].name;
  }
}

TEST(SweepDocument, OneWorldSizeHasNoScaling) {
  const Document document = sweep({run_json(2, 64, kOneRank)});
  EXPECT_EQ(document.verdict, "Only one world size, 2 ranks: scaling cannot be computed.");
  EXPECT_TRUE(section_of(document, "loss").table.rows.empty());
  EXPECT_THAT(section_of(document, "loss").paragraphs.front(), HasSubstr("Unknown"));
}

TEST(SweepDocument, PartsOfEachBarSumToTheStep) {
  const Document document = strong_document();
  const Section step = section_of(document, "step");
  for (const auto& chart : step.charts) {
    for (const auto& bar : std::get<BarChart>(chart).bars) {
      double sum = 0;
      for (const auto& segment : bar.segments) sum += segment.value;
      const double whole = std::get<BarChart>(chart).title == "Shares of a step" ? 1
                           : bar.name == "1 rank"                                ? 1
                                                                                 : 0.5;
      EXPECT_NEAR(sum, whole, 1e-12);
    }
  }
  const Section loss = section_of(document, "loss");
  for (const auto& row : loss.table.rows) {
    EXPECT_NEAR(std::get<double>(row.back()), 1, 1e-12);
  }
}

TEST(BarCharts, SegmentsFollowEachOtherAndAreAsLongAsTheirValues) {
  BarChart chart;
  chart.bars = {
      {"rank 0", {{"data", "Data", 1, "10 ms"}, {"forward", "Forward", 3, "30 ms"}}, "40 ms"},
      {"rank 1", {{"data", "Data", 2, "20 ms"}}, "20 ms"}};
  const std::string svg = svg_of(chart, "c");
  const std::regex rect(
      R"re(<rect class="seg k-(\w+)" x="([\d.]+)" y="[\d.]+" width="([\d.]+)" height="\d+"><title>([^<]*)<)re");
  std::vector<std::string> titles;
  std::vector<double> begins;
  std::vector<double> widths;
  for (auto found = std::sregex_iterator(svg.begin(), svg.end(), rect);
       found != std::sregex_iterator(); ++found) {
    titles.push_back((*found)[4]);
    begins.push_back(std::stod((*found)[2]));
    widths.push_back(std::stod((*found)[3]));
  }
  ASSERT_THAT(titles, testing::ElementsAre("rank 0, Data: 10 ms", "rank 0, Forward: 30 ms",
                                           "rank 1, Data: 20 ms"));
  EXPECT_NEAR(begins[1], begins[0] + widths[0], 0.02);
  EXPECT_EQ(begins[2], begins[0]);
  EXPECT_NEAR(widths[1], 3 * widths[0], 0.05);
  EXPECT_NEAR(widths[2], 2 * widths[0], 0.05);
}

// If the phases sum to less than the step, the bar must show the remainder.
TEST(SweepDocument, UnaccountedTimeIsDrawn) {
  auto gap = run_json(4, 64, kFourRanks);
  gap["step_seconds"]["mean"] = 0.7;
  const Document document = sweep({run_json(1, 64, kOneRank), gap});
  const auto bars = std::get<BarChart>(section_of(document, "step").charts[0]).bars;
  EXPECT_EQ(bars[1].segments.back().kind, "unaccounted");
  EXPECT_NEAR(bars[1].segments.back().value, 0.2, 1e-12);
}

TEST(RunDocument, ShowsEachRank) {
  const Document document =
      run_document(run_of(run_json(3, 64, kFourRanks), "dir"), "ddp-report test");
  EXPECT_EQ(document.verdict,
            "mlp on digits with 3 ranks on 1 node: 128 samples per second. Most of a step's 500 ms "
            "goes to backward: 31.2 %.");
  EXPECT_EQ(section_of(document, "ranks").table.rows.size(), 3U);
}

TEST(RunDocument, UnfinishedAndResumedRunsAreReported) {
  auto run = run_json(2, 64, kFourRanks);
  run["outcome"] = "interrupted";
  run["outcome_reason"] = "SIGTERM came";
  run["covers"] = R"({"first_step": 21, "last_step": 48, "earlier": [{}], "rows_missing": 0})"_json;
  const Document document = run_document(run_of(run), "p");
  EXPECT_THAT(document.cautions,
              Contains(HasSubstr("stopped on request and saved its state (SIGTERM came)")));
  EXPECT_THAT(document.cautions, Contains(HasSubstr("steps 21 to 48")));
  EXPECT_THAT(document.facts,
              Contains(std::pair<std::string, std::string>("covers steps", "21 to 48")));
  auto few = run_json(2, 64, kFourRanks);
  few["ranks"].erase(1);
  EXPECT_THAT(run_document(run_of(few), "p").cautions,
              Contains("run.json describes 1 of 2 ranks."));
}

TEST(RunDocument, ShardingIsAFactIfItIsKnown) {
  auto run = run_json(4, 64, kFourRanks);
  const auto has_fact = [&] {
    const auto facts = run_document(run_of(run), "p").facts;
    return std::ranges::any_of(facts, [](const auto& fact) { return fact.first == "sharding"; });
  };
  EXPECT_FALSE(has_fact()) << "a file that an older version wrote has no prediction";
  run["sharding"] = R"({"strategy": "gradients",
                        "divided_by": 4,
                        "predicted_bytes_between_steps": 2097152,
                        "predicted_bytes_in_step": 1048576,
                        "predicted_bytes_sent_per_step": 5242880,
                        "measured_peak_bytes": 4194304})"_json;
  EXPECT_THAT(run_document(run_of(run), "p").facts,
              Contains(Pair("sharding",
                            "gradients among 4 ranks; memory per rank: 2.0 MiB predicted between "
                            "steps and 3.0 MiB in a step, without activations, 4.0 MiB measured; "
                            "5.0 MiB sent per step")));
  run["sharding"] = R"({"strategy": "none", "divided_by": 1, "measured_peak_bytes": null})"_json;
  EXPECT_THAT(run_document(run_of(run), "p").facts,
              Contains(Pair("sharding",
                            "none; memory per rank: unknown predicted between steps and unknown "
                            "in a step, without activations, unknown measured; unknown sent per "
                            "step")));
}

TEST(RunDocument, LongNamesAreShortInTheTitle) {
  auto run = run_json(2, 64, kFourRanks);
  run["model"] = std::string(4000, 'm');
  const Document document = run_document(run_of(run), "p");
  EXPECT_LT(document.title.size(), 120U);
  EXPECT_LT(document.verdict.size(), 400U);
}

TEST(RunDocument, ManyRanksShowOnlyTheSlowest) {
  auto run = run_json(200, 64, kFourRanks);
  run["ranks"][150]["step_seconds"]["mean"] = 0.9;
  const Document document = run_document(run_of(run), "ddp-report test");
  const auto rows = section_of(document, "ranks").table.rows;
  EXPECT_EQ(rows.size(), 64U);
  EXPECT_THAT(rows, Contains(Contains(Cell(150.0))));
  EXPECT_THAT(section_of(document, "ranks").paragraphs, Contains("The 64 slowest of 200 ranks."));
}

TEST(CompareDocument, ListsDifferencesAndTheirSizes) {
  auto b = run_json(2, 64, kFourRanks);
  b["environment"]["OMP_NUM_THREADS"] = "4";
  const Document document =
      compare_document(run_of(run_json(2, 64, kOneRank), "a"), run_of(b, "b"), "ddp-report test");
  EXPECT_EQ(document.verdict,
            "B processes 128 samples per second and A 64.0, a ratio of 2.00. Of A's step: -46.9 % "
            "backward, -18.8 % forward, +12.5 % exposed communication.");
  const auto rows = section_of(document, "differences").table.rows;
  EXPECT_THAT(rows, Contains(std::vector<Cell>{"samples_per_second", 64.0, 128.0, 1.0}));
  EXPECT_THAT(rows,
              Contains(std::vector<Cell>{"environment.OMP_NUM_THREADS", Cell(), "4", Cell()}));
  for (const auto& row : rows) EXPECT_NE(row[1], row[2]);
  EXPECT_THAT(section_of(document, "differences").paragraphs.back(), HasSubstr("model, data"));
}

TEST(CompareDocument, RunIsEqualToItself) {
  const RunRecord run = run_of(run_json(2, 64, kOneRank));
  const Document document = compare_document(run, run, "ddp-report test");
  EXPECT_TRUE(section_of(document, "differences").table.rows.empty());
  EXPECT_THAT(document.cautions, IsEmpty());
}

// ---- rendering

TEST(Render, MarkdownGolden) {
  Document document;
  document.title = "Title|";
  document.verdict = "Verdict.";
  document.advice = "Advice.";
  document.cautions = {"Caution."};
  document.facts = {{"name", "value"}};
  Section one{"one", "Heading", {"Paragraph."}, {}, {}};
  one.table.columns = {{"a", "A", Show::text}, {"b", "B", Show::percent}};
  one.table.rows = {{"x|y", 0.5}, {Cell(), Cell()}};
  document.sections = {one};
  EXPECT_EQ(
      to_markdown(document),
      "# Title\\|\n\n**Verdict.**\n\nAdvice.\n\n> Caution.\n\n- name: value\n\n"
      "## Heading\n\nParagraph.\n\n| A | B |\n| --- | ---: |\n| x\\|y | 50.0 % |\n| – | – |\n\n");
}

TEST(Render, JsonHasUnformattedValues) {
  const auto written = to_json(strong_document());
  EXPECT_EQ(written["schema"], "slurm-ddp/report/1");
  EXPECT_EQ(written["kind"], "sweep");
  const auto& scaling = written["sections"][0]["table"];
  EXPECT_EQ(
      scaling["columns"][5],
      (nlohmann::json{{"key", "efficiency"}, {"heading", "efficiency"}, {"unit", "fraction"}}));
  EXPECT_EQ(scaling["rows"][1]["efficiency"], 0.5);
  EXPECT_EQ(scaling["rows"][1]["step_p50"], 0.5);
  EXPECT_EQ(written["sections"][5]["table"]["rows"][0]["overlap_ratio"], nullptr);
}

constexpr const char* kHostile = "</title><script>alert(1)</script>\"'&|\n![x](http)";

TEST(Render, ExternalStringsAreEscapedEverywhere) {
  auto run = run_json(2, 64, kFourRanks);
  for (const char* key :
       {"model", "data", "program", "command", "backend", "device", "parameters_crc32c"}) {
    run[key] = kHostile;
  }
  run["ranks"][0]["node"] = kHostile;
  run["environment"] = {{kHostile, kHostile}};
  const RunRecord record = run_of(run, kHostile);
  for (const Document& document :
       {run_document(record, "p"), sweep_document(analyze({record}), "p"),
        compare_document(record, run_of(run_json(2, 64, kOneRank)), "p")}) {
    const std::string html = to_html(document);
    EXPECT_THAT(html, Not(HasSubstr("<script")));
    EXPECT_THAT(html, HasSubstr("&lt;script&gt;"));
    const std::string markdown = to_markdown(document);
    EXPECT_THAT(markdown, HasSubstr("\\<script>"));
    EXPECT_THAT(markdown, Not(testing::ContainsRegex("[^\\]<")));
    EXPECT_THAT(markdown, Not(HasSubstr("[x]")));
  }
}

TEST(Render, HtmlIsSelfContained) {
  const std::string html = to_html(strong_document());
  for (const char* external : {"http", "src=", "@import", "url(", "<script", "<link"}) {
    EXPECT_THAT(html, Not(HasSubstr(external)));
  }
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(html, HasSubstr("@media print"));
}

// Figures that should not occur must still give a page without NaN in its drawings.
TEST(Render, ImpossibleFiguresStillRender) {
  const double nan = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  RunRecord broken = run_of(run_json(4, 64, kFourRanks));
  broken.samples_per_second = nan;
  broken.step.mean = infinity;
  broken.step.parts[0] = nan;
  broken.overlap_ratio = -5;
  broken.global_batch = 0;
  broken.started_unix = 1e300;
  RunRecord empty;
  empty.world_size = 8;
  for (const auto& runs : std::vector<std::vector<RunRecord>>{
           {broken}, {empty}, {run_of(run_json(1, 64, kOneRank)), broken}, {broken, empty}}) {
    const Document document = sweep_document(analyze(runs), "p");
    const std::string html = to_html(document);
    EXPECT_THAT(html, HasSubstr("</html>"));
    EXPECT_THAT(html, Not(HasSubstr("\"nan")));
    EXPECT_THAT(html, Not(HasSubstr("nan,")));
    EXPECT_THAT(html, Not(HasSubstr("\"inf")));
    EXPECT_THAT(to_markdown(document), Not(HasSubstr("nan")));
    EXPECT_NO_THROW(static_cast<void>(to_json(document).dump()));
  }
  EXPECT_THAT(to_html(run_document(broken, "p")), Not(HasSubstr("\"nan")));
  EXPECT_THAT(to_html(run_document(empty, "p")), HasSubstr("</html>"));
  EXPECT_THAT(to_html(compare_document(broken, empty, "p")), HasSubstr("</html>"));
}

}  // namespace
}  // namespace ddp::report
