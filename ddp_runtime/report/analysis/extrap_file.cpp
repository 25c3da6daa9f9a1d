// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/extrap_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace ddp::report {
namespace {

using Times = std::vector<std::pair<int, double>>;  // number of ranks, seconds

// Extra-P wants values with every number of ranks, and times that mean the same in all runs. Empty
// if a run has none.
template <typename Value>
Times times_of(const Scaling& scaling, const Value& value) {
  Times times;
  for (const auto& point : scaling.points) {
    for (const auto& run : point.runs) {
      const std::optional<double> seconds = value(run);
      if (!seconds) return {};
      times.emplace_back(point.world_size, *seconds);
    }
  }
  return times;
}

std::optional<double> known_step(const RunRecord& run) {
  return run.step.mean && *run.step.mean > 0 ? run.step.mean : std::nullopt;
}

// A single rank waits for no other, and does not communicate.
std::optional<double> known_waiting(const RunRecord& run) {
  const auto& waiting = run.step.parts[index_of(Phase::waiting)];
  return run.world_size == 1 ? std::optional(waiting.value_or(0)) : waiting;
}

std::optional<double> known_communication(const RunRecord& run) {
  const auto& exposed = run.step.parts[index_of(Phase::exposed_comm)];
  if (!exposed && run.world_size > 1) return std::nullopt;
  return exposed.value_or(0) + run.step.part(Phase::waiting);
}

// Whether exposed communication can be split into waiting and the rest in all runs.
bool is_split_alike(const Scaling& scaling) {
  const RunRecord* first = nullptr;
  for (const auto& point : scaling.points) {
    for (const auto& run : point.runs) {
      if (run.world_size == 1) continue;
      if (first == nullptr) first = &run;
      if (!have_alike_waiting(*first, run)) return false;
    }
  }
  return true;
}

std::string lines_of(const std::string& callpath, const Times& times) {
  std::string lines;
  for (const auto& [ranks, seconds] : times) {
    const nlohmann::json line = {{"params", {{"ranks", ranks}}},
                                 {"callpath", callpath},
                                 {"metric", "seconds"},
                                 {"value", seconds}};
    lines += line.dump() + "\n";
  }
  return lines;
}

}  // namespace

std::string to_extrap(const Scaling& scaling) {
  auto lines = lines_of("step", times_of(scaling, known_step));
  if (lines.empty()) throw RuntimeError("the step time of a run is unknown; Extra-P needs all");
  lines += lines_of("step->exposed_comm", times_of(scaling, known_communication));
  if (is_split_alike(scaling)) {
    lines += lines_of("step->exposed_comm->waiting", times_of(scaling, known_waiting));
  }
  for (const auto& [phase, key, name, brief] : kPhaseNames) {
    if (phase == Phase::waiting || phase == Phase::exposed_comm) continue;
    const auto part = [p = phase](const RunRecord& run) { return run.step.parts[index_of(p)]; };
    lines += lines_of(fmt::format("step->{}", key), times_of(scaling, part));
  }
  return lines;
}

}  // namespace ddp::report
