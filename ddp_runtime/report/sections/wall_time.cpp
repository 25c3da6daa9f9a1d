// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/sections/wall_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "ddp_runtime/report/document/format.h"

namespace ddp::report {
namespace {

struct WallPart {
  const char* key;
  const char* name;
  std::optional<double> WallSeconds::*seconds;
};

constexpr WallPart kWallParts[] = {
    {"startup", "start-up", &WallSeconds::startup},
    {"steps", "steps", &WallSeconds::steps},
    {"evaluation", "evaluation", &WallSeconds::evaluation},
    {"checkpoint", "checkpoints", &WallSeconds::checkpoint},
    {"rest", "rest", &WallSeconds::rest},
};

bool has_wall_time(const RunRecord& run) {
  const auto& total = run.wall.total;
  return total && *total > 0;
}

// Shares of the wall time above this are reported.
constexpr double kMuchOutside = 0.1;

std::string ending_of(const RunRecord& run) {
  if (run.outcome == "interrupted") return "stopped on request and saved its state";
  if (run.outcome == "failed") return "failed";
  return "has not reported its outcome: it was killed, or is still running";
}

}  // namespace

std::optional<Section> wall_section(const std::vector<const RunRecord*>& runs) {
  Section section{"wall", "Wall time of the job", {}, {}, {}};
  section.paragraphs = {
      "Counted from the start of the process; checkpoints that delay a step are part of the steps. "
      "Speedup and efficiency are those of the steps."};
  section.table.columns = {{"world_size", "ranks", Show::count},
                           {"source", "run", Show::text},
                           {"total", "total, s", Show::significant}};
  for (const auto& part : kWallParts) {
    section.table.columns.push_back({part.key, part.name, Show::percent});
  }
  for (const RunRecord* run : runs) {
    if (!has_wall_time(*run)) continue;
    std::vector<Cell> cells{double(run->world_size), run->source, *run->wall.total};
    for (const auto& part : kWallParts) {
      const auto& seconds = run->wall.*part.seconds;
      cells.push_back(cell_of(seconds ? std::optional(*seconds / *run->wall.total) : std::nullopt));
    }
    section.table.rows.push_back(std::move(cells));
  }
  return section.table.rows.empty() ? std::nullopt : std::optional(std::move(section));
}

std::vector<std::string> wall_cautions(const RunRecord& run) {
  std::vector<std::string> texts;
  if (!run.outcome.empty() && run.outcome != "finished") {
    const std::string reason =
        run.outcome_reason.empty() ? "" : fmt::format(" ({})", run.outcome_reason);
    texts.push_back(fmt::format("The run {}{}: this report covers its steps up to then.",
                                ending_of(run), reason));
  }
  if (run.covers.earlier_processes > 0) {
    texts.push_back(
        fmt::format("The run was resumed: times cover steps {} to {}, which the last process "
                    "trained; run.json lists the earlier ones.",
                    text_of(cell_of(run.covers.first_step), Show::count),
                    text_of(cell_of(run.covers.last_step), Show::count)));
  }
  const auto& steps = run.wall.steps;
  if (has_wall_time(run) && steps && *steps < (1 - kMuchOutside) * *run.wall.total) {
    texts.push_back(fmt::format("{} of the wall time with {} was outside of the steps.",
                                percent(1 - *steps / *run.wall.total),
                                counted(run.world_size, "rank")));
  }
  return texts;
}

std::vector<std::pair<std::string, std::string>> coverage_facts(const RunRecord& run) {
  std::vector<std::pair<std::string, std::string>> facts;
  if (!run.outcome.empty()) facts.emplace_back("outcome", run.outcome);
  if (run.covers.first_step && run.covers.last_step && *run.covers.last_step > 0) {
    facts.emplace_back("covers steps", fmt::format("{:.0f} to {:.0f}", *run.covers.first_step,
                                                   *run.covers.last_step));
  }
  if (run.covers.earlier_processes > 0) {
    facts.emplace_back("earlier processes", std::to_string(run.covers.earlier_processes));
  }
  if (run.covers.rows_missing > 0) {
    facts.emplace_back("rows missing in steps.csv", fmt::format("{:.0f}", run.covers.rows_missing));
  }
  return facts;
}

bool steps_vary(const RunRecord& run) {
  const auto& p50 = run.step.p50;
  const auto& p95 = run.step.p95;
  return p50 && p95 && *p50 > 0 && *p95 > 2 * *p50;
}

}  // namespace ddp::report
