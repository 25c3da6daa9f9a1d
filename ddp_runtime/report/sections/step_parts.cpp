// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/sections/step_parts.h"

#include <algorithm>

#include "ddp_runtime/report/document/format.h"

namespace ddp::report {
namespace {

struct Advice {
  std::string_view kind;
  std::string_view text;
};

constexpr Advice kAdvice[] = {
    {"data",
     "Data loading does not keep up: try more loader workers, or faster storage for the data."},
    {"forward",
     "The computation itself became slower: check that ranks do not share CPUs, that each has "
     "enough threads (OMP_NUM_THREADS), and that memory bandwidth is not the limit."},
    {"backward",
     "The computation itself became slower: check that ranks do not share CPUs, that each has "
     "enough threads (OMP_NUM_THREADS), and that memory bandwidth is not the limit."},
    {"waiting",
     "Ranks wait for each other, and none is consistently late: they take turns being slow, for "
     "example because other programs or the system take their CPUs, or because samples differ in "
     "size. A larger batch per rank evens this out."},
    {"exposed_comm",
     "Backward does not hide the communication: try a larger batch per rank, a different bucket "
     "size, or gradient accumulation, and check the network with ddp-check net."},
    {"optimizer",
     "The optimizer's work does not shrink with more ranks: try a larger batch per rank, or "
     "accumulate gradients so that it runs less often."},
    {"checkpoint", "Checkpoints take a share of every step: write them less often."},
    {"other", "Time is lost between the phases: check the trace of the run."},
    {"unaccounted",
     "Part of the step belongs to no phase: the parts in run.json do not sum to it."},
    {"outside", "Time is lost outside of the steps: start-up, evaluation, pauses between epochs."},
};

}  // namespace

Bar step_bar(std::string name, const StepSeconds& step) {
  Bar bar{std::move(name), {}, step.mean ? milliseconds(*step.mean) + " ms" : kAbsent};
  const double whole = step.mean.value_or(0);
  const auto add = [&](std::string_view key, std::string_view words, double seconds) {
    if (!(seconds > 0)) return;
    const std::string label = whole > 0 ? percent(seconds / whole) : "";
    bar.segments.push_back({std::string(key), std::string(words), seconds, label});
  };
  for (const auto& [phase, key, words, brief] : kPhaseNames) add(key, words, step.part(phase));
  add("unaccounted", "unaccounted", step.unaccounted().value_or(0));
  return bar;
}

std::vector<Column> step_columns() {
  std::vector<Column> columns{{"step_mean", "step, ms", Show::milliseconds}};
  for (const auto& [phase, key, words, brief] : kPhaseNames) {
    columns.push_back({std::string(key), std::string(brief), Show::milliseconds});
  }
  columns.push_back({"unaccounted", "unaccounted", Show::milliseconds});
  return columns;
}

std::vector<Cell> step_cells(const StepSeconds& step) {
  std::vector<Cell> cells{cell_of(step.mean)};
  for (const auto& entry : kPhaseNames) cells.push_back(cell_of(step.parts[index_of(entry.phase)]));
  cells.emplace_back(step.unaccounted().value_or(0));
  return cells;
}

std::string_view advice_for(std::string_view kind) {
  const auto* found = std::find_if(std::begin(kAdvice), std::end(kAdvice),
                                   [kind](const Advice& advice) { return advice.kind == kind; });
  return found == std::end(kAdvice) ? std::string_view() : found->text;
}

std::vector<std::pair<std::string, std::string>> step_glossary() {
  return {{"waiting for other ranks",
           "the part of the exposed communication in which another rank had not arrived yet"},
          {"exposed communication",
           "communication that the backward pass does not hide, not counting that waiting"},
          {"overlap", "the part of the communication that the backward pass hides"},
          {"other", "time of a step in none of the named phases"},
          {"p50, p95", "half of the steps, and 95 of 100, took at most this long"},
          {"ms", "milliseconds"},
          {"GB", "10^9 bytes"}};
}

bool parts_do_not_sum(const RunRecord& run) {
  return run.step.unaccounted().has_value();
}

}  // namespace ddp::report
