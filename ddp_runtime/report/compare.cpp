// SPDX-License-Identifier: Apache-2.0
// The document that compares two runs, or two groups of runs: the differences and their sizes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ddp_runtime/report/analysis/contributions.h"
#include "ddp_runtime/report/analysis/late_rank.h"
#include "ddp_runtime/report/collect.h"
#include "ddp_runtime/report/document/format.h"
#include "ddp_runtime/report/document/waterfall.h"
#include "ddp_runtime/report/sections/step_parts.h"

namespace ddp::report {
namespace {

struct Row {
  std::string key;
  Cell a;
  Cell b;
};

using Rows = std::vector<Row>;

void add_step(Rows& rows, const StepSeconds& a, const StepSeconds& b) {
  rows.push_back({"step_seconds.mean", cell_of(a.mean), cell_of(b.mean)});
  rows.push_back({"step_seconds.p50", cell_of(a.p50), cell_of(b.p50)});
  rows.push_back({"step_seconds.p95", cell_of(a.p95), cell_of(b.p95)});
  std::vector<std::pair<double, Row>> phases;
  phases.reserve(std::size(kPhaseNames));
  for (const auto& [phase, key, name, brief] : kPhaseNames) {
    phases.push_back({std::abs(b.part(phase) - a.part(phase)),
                      {fmt::format("step_seconds.{}", key), cell_of(a.parts[index_of(phase)]),
                       cell_of(b.parts[index_of(phase)])}});
  }
  std::stable_sort(phases.begin(), phases.end(),
                   [](const auto& x, const auto& y) { return x.first > y.first; });
  for (auto& [change, row] : phases) rows.push_back(std::move(row));
}

using Texts = std::map<std::string, std::string>;

void add_texts(Rows& rows, const std::string& object, const Texts& a, const Texts& b) {
  std::map<std::string, std::pair<Cell, Cell>> both;
  for (const auto& [name, value] : a) both[name].first = value;
  for (const auto& [name, value] : b) both[name].second = value;
  for (const auto& [name, values] : both) {
    rows.push_back({fmt::format("{}.{}", object, name), values.first, values.second});
  }
}

void add_resilience_rows(Rows& rows, const RunRecord& a, const RunRecord& b) {
  if (!a.resilience && !b.resilience) return;
  const auto add = [&](const char* key, auto value_of_run) {
    const auto cell = [&](const RunRecord& run) {
      return run.resilience ? cell_of(std::optional<double>(value_of_run(*run.resilience)))
                            : Cell();
    };
    rows.push_back({fmt::format("resilience.{}", key), cell(a), cell(b)});
  };
  add("ettr", [](const ResilienceRecord& run) { return run.ettr; });
  add("faults", [](const ResilienceRecord& run) { return run.faults; });
  add("wall_seconds", [](const ResilienceRecord& run) { return run.wall_seconds; });
}

// All fields except time and place of the run, which always differ.
Rows all_rows(const RunRecord& a, const RunRecord& b) {
  Rows rows{{"program", a.program, b.program},
            {"command", a.command, b.command},
            {"world_size", double(a.world_size), double(b.world_size)},
            {"nodes", double(a.nodes), double(b.nodes)},
            {"backend", a.backend, b.backend},
            {"device", a.device, b.device},
            {"model", a.model, b.model},
            {"data", a.data, b.data},
            {"parameters", cell_of(a.parameters), cell_of(b.parameters)},
            {"global_batch", cell_of(a.global_batch), cell_of(b.global_batch)},
            {"steps", cell_of(a.steps), cell_of(b.steps)},
            {"samples_per_second", cell_of(a.samples_per_second), cell_of(b.samples_per_second)},
            {"final.train_loss", cell_of(a.train_loss), cell_of(b.train_loss)},
            {"final.eval_loss", cell_of(a.eval_loss), cell_of(b.eval_loss)},
            {"final.eval_accuracy", cell_of(a.eval_accuracy), cell_of(b.eval_accuracy)},
            {"parameters_crc32c", a.parameters_crc32c, b.parameters_crc32c}};
  add_step(rows, a.step, b.step);
  rows.push_back({"comm.bytes_per_step", cell_of(a.bytes_per_step), cell_of(b.bytes_per_step)});
  rows.push_back({"comm.busbw_GBps", cell_of(a.busbw_GBps), cell_of(b.busbw_GBps)});
  rows.push_back({"comm.overlap_ratio", cell_of(a.overlap_ratio), cell_of(b.overlap_ratio)});
  add_resilience_rows(rows, a, b);
  add_texts(rows, "settings", a.settings, b.settings);
  add_texts(rows, "environment", a.environment, b.environment);
  return rows;
}

Cell change(const Row& row) {
  const auto* a = std::get_if<double>(&row.a);
  const auto* b = std::get_if<double>(&row.b);
  if (a == nullptr || b == nullptr || *a == 0) return {};
  return (*b - *a) / std::abs(*a);
}

Section difference_section(const Rows& rows) {
  Section section{"differences", "Differences", {}, {}, {}};
  section.table.columns = {{"key", "in run.json", Show::text},
                           {"a", "A", Show::text},
                           {"b", "B", Show::text},
                           {"change", "B compared with A", Show::percent}};
  std::string same;
  for (const auto& row : rows) {
    if (row.a == row.b) {
      same += (same.empty() ? "" : ", ") + row.key;
    } else {
      section.table.rows.push_back({row.key, row.a, row.b, change(row)});
    }
  }
  section.paragraphs = {
      "Figures are seconds, counts and fractions, as in run.json, but exposed_comm is shown "
      "without "
      "the waiting, which run.json includes in it. Phases whose time changed most come first."};
  if (!same.empty()) section.paragraphs.push_back("Same in both: " + same + ".");
  return section;
}

std::string cause_text(const char* name, const RunRecord& run) {
  const auto why = sentences_of(find_cause(run));
  return why.empty() ? "" : fmt::format(" {}: {}", name, why);
}

std::string ettr_text(const RunRecord& a, const RunRecord& b) {
  if (!a.resilience || !b.resilience || !a.resilience->ettr || !b.resilience->ettr) return "";
  return fmt::format(" B made progress in {} of its time (ETTR), A in {}.",
                     percent(*b.resilience->ettr), percent(*a.resilience->ettr));
}

std::string ratio_text(const RunRecord& a, const RunRecord& b) {
  if (!a.samples_per_second || !b.samples_per_second || *a.samples_per_second <= 0) {
    return "The throughput of one of the runs is unknown.";
  }
  const double ratio = *b.samples_per_second / *a.samples_per_second;
  return fmt::format("B processes {} samples per second and A {}, a ratio of {}.",
                     significant(*b.samples_per_second), significant(*a.samples_per_second),
                     significant(ratio));
}

// Two groups of runs.
struct Sides {
  const ScalingPoint& a;
  const ScalingPoint& b;
  Comparison judged;
  std::vector<Contribution> contributions;

  bool are_single_runs() const { return a.runs.size() + b.runs.size() == 2; }
};

std::string verdict(const Sides& sides) {
  const auto& a = sides.a.median;
  const auto& b = sides.b.median;
  const auto text = sides.are_single_runs() && sides.judged.metric == Metric::time
                        ? ratio_text(a, b)
                        : capitalized(sentence_of(sides.judged)) + ".";
  const auto phases = sentence_of(sides.contributions);
  const auto by_phase = phases.empty() ? "" : fmt::format(" Of A's step: {}.", phases);
  return text + by_phase + ettr_text(a, b) + cause_text("A", a) + cause_text("B", b);
}

// Each figure of which more is worse, with its interval.
Section noise_section(const Sides& sides) {
  Section section{"noise", "Differences and noise", {}, {}, {}};
  section.paragraphs = {
      "How much more time or memory B needs than A, by all runs of both. The range contains the "
      "difference in 98 of 100 comparisons; if it contains 0, noise explains the difference. The "
      "noise is the standard deviation of one run. The other tables show the median runs."};
  section.table.columns = {
      {"metric", "figure", Show::text},          {"runs_a", "runs of A", Show::count},
      {"runs_b", "runs of B", Show::count},      {"change", "B compared with A", Show::percent},
      {"least", "from", Show::percent},          {"most", "to", Show::percent},
      {"noise", "noise of a run", Show::percent}};
  for (const auto& name : kMetricNames) {
    const auto one = compare(sides.a, sides.b, name.metric);
    std::vector<Cell> row(section.table.columns.size());
    row[0] = std::string(name.title);
    row[1] = static_cast<double>(one.runs_a);
    row[2] = static_cast<double>(one.runs_b);
    if (const auto& change = one.change) {
      row[3] = change->estimate;
      row[4] = change->least;
      row[5] = change->most;
      row[6] = change->noise;
    }
    section.table.rows.push_back(std::move(row));
  }
  return section;
}

BarChart contribution_chart(const std::vector<Contribution>& list) {
  WaterfallStep from{"kept", "A", 0, ""};
  WaterfallStep to{"kept", "B", 0, ""};
  std::vector<WaterfallStep> changes;
  for (const auto& one : list) {
    from.value += one.a;
    to.value += one.b;
    // Without the rank, whose name may be too long for a chart.
    changes.push_back({one.kind, one.name, one.b - one.a, signed_percent(one.part)});
  }
  from.label = milliseconds(from.value) + " ms";
  to.label = milliseconds(to.value) + " ms";
  return {"From A's step to B's",
          "A bar for the step of A, one for what each phase of B takes more or less, and one for "
          "the step of B.",
          "ms for a step of A's size",
          waterfall(from, changes, to),
          1000,
          {},
          true};
}

bool are_finite(const std::vector<Contribution>& list) {
  return !list.empty() && std::ranges::all_of(list, [](const Contribution& one) {
    return std::isfinite(one.a) && std::isfinite(one.b) && std::isfinite(one.part);
  });
}

Section contribution_section(const std::vector<Contribution>& list) {
  Section section{"contributions", "What makes the difference", {}, {contribution_chart(list)}, {}};
  section.paragraphs = {
      "Means of all runs, for as many samples per rank as in a step of A. The parts sum to the "
      "difference. The range contains the part in 98 of 100 comparisons, and takes four runs in "
      "all; if it contains 0, noise explains the part."};
  section.table.columns = {
      {"phase", "phase", Show::text},     {"a", "A, ms", Show::milliseconds},
      {"b", "B, ms", Show::milliseconds}, {"part", "of A's step", Show::percent},
      {"least", "from", Show::percent},   {"most", "to", Show::percent}};
  for (const auto& one : list) {
    if (one.a == 0 && one.b == 0) continue;
    const auto end = [&](double Interval::*which) {
      return one.interval ? Cell((*one.interval).*which) : Cell();
    };
    section.table.rows.push_back(
        {one.full_name(), one.a, one.b, one.part, end(&Interval::least), end(&Interval::most)});
  }
  return section;
}

Section step_section(const RunRecord& a, const RunRecord& b) {
  Section steps{"step", "Where the step time goes", {}, {}, {}};
  BarChart chart{"Step time",
                 "One bar per run, showing the mean step, split into "
                 "phases.",
                 "ms per step",
                 {step_bar("A", a.step), step_bar("B", b.step)},
                 1000,
                 {}};
  steps.charts = {chart};
  steps.table.columns = step_columns();
  steps.table.columns.insert(steps.table.columns.begin(), {"run", "run", Show::text});
  for (const auto& [name, run] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    const auto cells = step_cells(run->step);
    auto& row = steps.table.rows.emplace_back();
    row.emplace_back(std::string(name));
    row.insert(row.end(), cells.begin(), cells.end());
  }
  return steps;
}

std::string sources_of(const ScalingPoint& group) {
  std::string list = group.median.source;
  if (group.runs.size() > 1) {
    list += fmt::format(" (the median of {} runs)", group.runs.size());
  }
  return list;
}

nlohmann::json json_of(const Comparison& comparison) {
  nlohmann::json result = {{"metric", name_of(comparison.metric).name},
                           {"runs_a", comparison.runs_a},
                           {"runs_b", comparison.runs_b},
                           {"change", nullptr}};
  if (const auto& change = comparison.change) {
    result["change"] = {{"estimate", change->estimate},
                        {"least", change->least},
                        {"most", change->most},
                        {"noise", change->noise}};
  }
  return result;
}

ScalingPoint group_of(const RunRecord& run) {
  return analyze({run}).points.front();
}

}  // namespace

Document compare_document(const ScalingPoint& a, const ScalingPoint& b, Metric metric,
                          const std::string& program) {
  const Sides sides{a, b, compare(a, b, metric), contributions(a, b)};
  const auto& from = a.median;
  const auto& to = b.median;
  Document document;
  document.kind = "compare";
  document.program = program;
  document.title =
      sides.are_single_runs() ? "Comparison of two runs" : "Comparison of two groups of runs";
  document.verdict = verdict(sides);
  if (from.model != to.model || from.data != to.data || from.world_size != to.world_size) {
    document.cautions = {
        "The runs differ in model, data or number of ranks: their speeds cannot be "
        "compared."};
  }
  document.facts = {{"A", sources_of(a)}, {"B", sources_of(b)}};
  if (!sides.are_single_runs()) document.sections.push_back(noise_section(sides));
  if (are_finite(sides.contributions)) {
    document.sections.push_back(contribution_section(sides.contributions));
  }
  auto differences = difference_section(all_rows(from, to));
  document.summary = {{"differences", differences.table.rows.size()},
                      {"judged", json_of(sides.judged)}};
  document.sections.push_back(std::move(differences));
  document.sections.push_back(step_section(from, to));
  document.glossary = step_glossary();
  return document;
}

Document compare_document(const RunRecord& a, const RunRecord& b, const std::string& program) {
  return compare_document(group_of(a), group_of(b), Metric::time, program);
}

}  // namespace ddp::report
