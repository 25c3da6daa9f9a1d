// SPDX-License-Identifier: Apache-2.0
// The document that compares two runs: the differences and their sizes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "ddp_runtime/report/collect.h"
#include "ddp_runtime/report/format.h"
#include "ddp_runtime/report/late_rank.h"
#include "ddp_runtime/report/step_parts.h"

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

// The change of the time per sample and rank from A to B, by phase. The parts sum to the whole.
struct Growth {
  std::string name;
  double seconds = 0;  // time of B's step
};

// The phases of B's step compared with A's for the same amount of work, largest change first. Empty
// if a batch size or a mean is unknown.
std::vector<Growth> growths(const RunRecord& a, const RunRecord& b) {
  if (!a.step.mean || !b.step.mean || !a.global_batch || !b.global_batch || *a.global_batch <= 0) {
    return {};
  }
  const double share = (*b.global_batch / b.world_size) / (*a.global_batch / a.world_size);
  std::vector<Growth> list;
  list.reserve(std::size(kPhaseNames));
  for (const auto& [phase, key, name, brief] : kPhaseNames) {
    list.push_back({std::string(name), b.step.part(phase) - share * a.step.part(phase)});
  }
  std::stable_sort(list.begin(), list.end(), [](const Growth& x, const Growth& y) {
    return std::abs(x.seconds) > std::abs(y.seconds);
  });
  return list;
}

std::string growth_text(const RunRecord& a, const RunRecord& b) {
  constexpr std::size_t kMaxReported = 2;
  constexpr double kWorthTelling = 0.01;
  std::string text;
  std::size_t told = 0;
  for (const auto& growth : growths(a, b)) {
    if (told == kMaxReported || std::abs(growth.seconds) < kWorthTelling * *b.step.mean) break;
    text += fmt::format("{}{}{} ms {}", told++ == 0 ? "" : ", ", growth.seconds > 0 ? "+" : "",
                        milliseconds(growth.seconds), growth.name);
  }
  return text.empty() ? ""
                      : fmt::format(" In a step of {} ms: {}.", milliseconds(*b.step.mean), text);
}

std::string cause_text(const char* name, const RunRecord& run) {
  const auto why = sentences_of(find_cause(run));
  return why.empty() ? "" : fmt::format(" {}: {}", name, why);
}

std::string verdict(const RunRecord& a, const RunRecord& b) {
  if (!a.samples_per_second || !b.samples_per_second || *a.samples_per_second <= 0) {
    return "The throughput of one of the runs is unknown.";
  }
  const double ratio = *b.samples_per_second / *a.samples_per_second;
  return fmt::format("B processes {} samples per second and A {}, a ratio of {}.",
                     significant(*b.samples_per_second), significant(*a.samples_per_second),
                     significant(ratio)) +
         growth_text(a, b) + cause_text("A", a) + cause_text("B", b);
}

}  // namespace

Document compare_document(const RunRecord& a, const RunRecord& b, const std::string& program) {
  Document document;
  document.kind = "compare";
  document.program = program;
  document.title = "Comparison of two runs";
  document.verdict = verdict(a, b);
  if (a.model != b.model || a.data != b.data || a.world_size != b.world_size) {
    document.cautions = {
        "The runs differ in model, data or number of ranks: their speeds cannot be "
        "compared."};
  }
  document.facts = {{"A", a.source}, {"B", b.source}};
  document.sections = {difference_section(all_rows(a, b))};
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
    auto cells = step_cells(run->step);
    cells.insert(cells.begin(), std::string(name));
    steps.table.rows.push_back(std::move(cells));
  }
  document.sections.push_back(std::move(steps));
  document.glossary = step_glossary();
  document.summary = {{"differences", document.sections.front().table.rows.size()}};
  return document;
}

}  // namespace ddp::report
