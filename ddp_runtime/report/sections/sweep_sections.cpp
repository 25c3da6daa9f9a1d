// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/sections/sweep_sections.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "ddp_runtime/report/analysis/extrapolation.h"
#include "ddp_runtime/report/analysis/named_losses.h"
#include "ddp_runtime/report/document/format.h"
#include "ddp_runtime/report/document/waterfall.h"
#include "ddp_runtime/report/sections/step_parts.h"

namespace ddp::report {
namespace {

const Column kRanks{"world_size", "ranks", Show::count};

Cell count_of(std::size_t count) {
  return static_cast<double>(count);
}

RankPoint at(int world_size, double value) {
  return {world_size, value, {}, {}, {}};
}

std::string how_it_scales(ScalingKind kind) {
  switch (kind) {
    case ScalingKind::strong:
      return " Scaling is strong: the global batch is the same for all numbers of ranks.";
    case ScalingKind::weak:
      return " Scaling is weak: the batch per rank is the same for all numbers of ranks.";
    case ScalingKind::mixed:
    case ScalingKind::single:
      break;
  }
  return "";
}

RankChart speedup_chart(const Scaling& scaling) {
  RankChart chart;
  chart.title = "Speedup";
  chart.description =
      fmt::format("Throughput relative to {}, over the number of ranks; the dashed line is ideal.",
                  ranks(scaling.base));
  chart.unit = "times";
  chart.logarithmic = true;
  for (const auto& point : scaling.points) {
    const double ideal = static_cast<double>(point.world_size) / scaling.base;
    chart.ideal.push_back(at(point.world_size, ideal));
    if (!point.speedup) continue;
    RankPoint dot{point.world_size, *point.speedup, {}, {}, significant(*point.speedup)};
    if (point.interval) {
      dot.low = point.interval->least * ideal;
      dot.high = point.interval->most * ideal;
    }
    chart.points.push_back(std::move(dot));
  }
  return chart;
}

RankChart efficiency_chart(const Scaling& scaling) {
  RankChart chart;
  chart.title = "Efficiency";
  chart.description = "Speedup as a fraction of the ideal speedup, over the number of ranks.";
  chart.percent = true;
  for (const auto& point : scaling.points) {
    chart.ideal.push_back(at(point.world_size, 1));
    if (!point.efficiency) continue;
    RankPoint dot{point.world_size, *point.efficiency, {}, {}, percent(*point.efficiency)};
    if (point.interval) {
      dot.low = point.interval->least;
      dot.high = point.interval->most;
    }
    chart.points.push_back(std::move(dot));
  }
  return chart;
}

RankChart throughput_chart(const Scaling& scaling) {
  RankChart chart;
  chart.title = "Samples per second";
  chart.description =
      "Samples per second over the number of ranks; the dashed line is the base's throughput "
      "scaled without any loss.";
  chart.unit = "samples/s";
  chart.logarithmic = true;
  const auto base = scaling.points.front().median.samples_per_second;
  for (const auto& point : scaling.points) {
    const auto& value = point.median.samples_per_second;
    if (base) chart.ideal.push_back(at(point.world_size, *base * point.world_size / scaling.base));
    if (!value) continue;
    RankPoint dot{point.world_size, *value, {}, {}, compact(*value)};
    if (point.runs.size() > 1) {
      dot.low = point.slowest;
      dot.high = point.fastest;
    }
    chart.points.push_back(std::move(dot));
  }
  return chart;
}

// Converts a bar's values to fractions of the whole.
Bar as_shares(Bar bar) {
  double whole = 0;
  for (const auto& segment : bar.segments) whole += segment.value;
  for (auto& segment : bar.segments) segment.value /= whole;
  bar.total.clear();
  return bar;
}

BarChart step_chart(const Scaling& scaling) {
  BarChart chart;
  chart.title = "Step time";
  chart.description = "One bar per number of ranks, showing the mean step, split into phases.";
  chart.unit = "ms per step";
  chart.axis_factor = 1000;
  for (const auto& point : scaling.points) {
    chart.bars.push_back(step_bar(ranks(point.world_size), point.median.step));
  }
  return chart;
}

BarChart share_chart(const BarChart& steps) {
  BarChart chart;
  chart.title = "Shares of a step";
  chart.description =
      "One bar per number of ranks: the fraction of the step that each phase takes.";
  chart.unit = "% of the step";
  chart.axis_factor = 100;
  for (const auto& bar : steps.bars) chart.bars.push_back(as_shares(bar));
  return chart;
}

Bar loss_bar(const ScalingPoint& point) {
  constexpr double kWorthDrawing = 0.0005;
  Bar bar{ranks(point.world_size), {}, ""};
  bar.segments.push_back({"kept", "kept", *point.efficiency, percent(*point.efficiency)});
  for (const auto& loss : named_losses(*point.losses)) {
    if (loss.part < 0) bar.begin += loss.part;
    if (loss.part < kWorthDrawing) continue;
    bar.segments.push_back({loss.kind, loss.name, loss.part, percent(loss.part)});
  }
  return bar;
}

BarChart loss_chart(const Scaling& scaling) {
  BarChart chart;
  chart.title = "Fractions of the ideal throughput";
  chart.description =
      "One bar per number of ranks: the fraction of the ideal throughput that was reached, and the "
      "fractions that were lost to each phase.";
  chart.unit = "% of the ideal";
  chart.axis_factor = 100;
  chart.reference = 1;
  for (const auto& point : scaling.points) {
    if (point.losses) chart.bars.push_back(loss_bar(point));
  }
  return chart;
}

// From the ideal to what the largest number of ranks reached.
BarChart waterfall_chart(const ScalingPoint& point) {
  std::vector<WaterfallStep> changes;
  for (const auto& loss : named_losses(*point.losses)) {
    changes.push_back({loss.kind, loss.name, -loss.part, signed_percent(-loss.part)});
  }
  return {fmt::format("From the ideal throughput to that of {}", ranks(point.world_size)),
          "A bar for the ideal throughput, one for what each phase takes away from it or adds to "
          "it, and one for the throughput that was reached.",
          "% of the ideal",
          waterfall({"kept", "ideal", 1, percent(1)}, changes,
                    {"kept", "kept", *point.efficiency, percent(*point.efficiency)}),
          100,
          {},
          true};
}

Table loss_table(const Scaling& scaling) {
  Table table;
  table.columns = {kRanks, {"kept", "kept", Show::percent}};
  for (const auto& loss : named_losses({})) {
    table.columns.push_back({loss.kind, loss.brief, Show::percent});
  }
  table.columns.push_back({"sum", "sum", Show::percent});
  for (const auto& point : scaling.points) {
    if (!point.losses) continue;
    std::vector<Cell> cells{double(point.world_size), *point.efficiency};
    for (const auto& loss : named_losses(*point.losses)) cells.emplace_back(loss.part);
    cells.emplace_back(*point.efficiency + total(*point.losses));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

std::string day_and_time(const std::optional<double>& unix_time) {
  if (!unix_time || *unix_time < 0 || *unix_time > 4e9) return "";
  const auto seconds = static_cast<std::time_t>(*unix_time);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("{:%Y-%m-%d %H:%M} UTC", utc);
}

// One end of the interval of the efficiency.
Cell end_of(const ScalingPoint& point, double Interval::*end) {
  return point.interval ? Cell((*point.interval).*end) : Cell();
}

std::string how_sure(const Scaling& scaling) {
  if (!scaling.noise) return "";
  return fmt::format(
      " Runs with the same number of ranks differ by {} (standard deviation), so the efficiency is "
      "in the range from .. to with 90 % certainty.",
      percent(*scaling.noise));
}

}  // namespace

Section speed_section(const Scaling& scaling) {
  Section section{"scaling", "Speedup and efficiency", {}, {}, {}};
  section.charts = {speedup_chart(scaling), efficiency_chart(scaling)};
  section.paragraphs = {fmt::format(
      "Base: {}. Speedup is throughput divided by the base's; efficiency is speedup divided by the "
      "ratio of ranks.{}{}",
      ranks(scaling.base), how_it_scales(scaling.kind), how_sure(scaling))};
  section.table.columns = {kRanks,
                           {"nodes", "nodes", Show::count},
                           {"runs", "runs", Show::count},
                           {"global_batch", "global batch", Show::count},
                           {"speedup", "speedup", Show::significant},
                           {"efficiency", "efficiency", Show::percent},
                           {"efficiency_low", "from", Show::percent},
                           {"efficiency_high", "to", Show::percent},
                           {"step_p50", "step p50, ms", Show::milliseconds},
                           {"step_p95", "step p95, ms", Show::milliseconds}};
  for (const auto& point : scaling.points) {
    const RunRecord& run = point.median;
    section.table.rows.push_back({double(point.world_size), double(run.nodes),
                                  count_of(point.runs.size()), cell_of(run.global_batch),
                                  cell_of(point.speedup), cell_of(point.efficiency),
                                  end_of(point, &Interval::least), end_of(point, &Interval::most),
                                  cell_of(run.step.p50), cell_of(run.step.p95)});
  }
  return section;
}

Section throughput_section(const Scaling& scaling) {
  Section section{"throughput", "Throughput", {}, {}, {}};
  section.charts = {throughput_chart(scaling)};
  section.table.columns = {kRanks,
                           {"samples_per_second", "samples/s", Show::significant},
                           {"samples_per_second_low", "lowest", Show::significant},
                           {"samples_per_second_high", "highest", Show::significant},
                           {"samples_per_second_per_rank", "per rank", Show::significant}};
  for (const auto& point : scaling.points) {
    const auto& value = point.median.samples_per_second;
    const auto per_rank = value ? std::optional(*value / point.world_size) : std::nullopt;
    section.table.rows.push_back({double(point.world_size), cell_of(value), cell_of(point.slowest),
                                  cell_of(point.fastest), cell_of(per_rank)});
  }
  return section;
}

Section step_section(const Scaling& scaling) {
  Section section{"step", "Where the step time goes", {}, {}, {}};
  const BarChart steps = step_chart(scaling);
  section.charts = {steps, share_chart(steps)};
  section.paragraphs = {
      "Means per step over the ranks of the median run; the parts sum to the step."};
  section.table.columns = step_columns();
  section.table.columns.insert(section.table.columns.begin(), kRanks);
  for (const auto& point : scaling.points) {
    auto cells = step_cells(point.median.step);
    cells.insert(cells.begin(), double(point.world_size));
    section.table.rows.push_back(std::move(cells));
  }
  return section;
}

Section loss_section(const Scaling& scaling) {
  Section section{"loss", "Where efficiency was lost", {}, {}, loss_table(scaling)};
  if (section.table.rows.empty()) {
    section.paragraphs = {
        "Unknown: this takes two numbers of ranks, with throughput, global batch and mean step "
        "time."};
    return section;
  }
  section.charts = {loss_chart(scaling)};
  if (const auto& last = scaling.points.back(); last.losses) {
    section.charts.emplace_back(waterfall_chart(last));
  }
  section.paragraphs = {
      "The ideal is the base's time per step for this share of the work. Time that a phase takes "
      "beyond its share is lost to it; kept and lost add up to 100 %. A phase that takes less than "
      "its share has a negative loss: its bar starts below zero by that amount, and ends at 100 "
      "%."};
  return section;
}

Section extrapolation_section(const Scaling& scaling) {
  Section section{"extrapolation", "With more ranks", {}, {}, {}};
  const auto found = extrapolate(scaling);
  if (!found.refusal.empty()) {
    section.paragraphs = {fmt::format("Unknown: {}", found.refusal)};
    return section;
  }
  section.paragraphs = {
      fmt::format(
          "Expected, not measured. Fitted to all runs, with N ranks: computation {}, exposed "
          "communication with its waiting {}. The ranges contain the truth with 90 % "
          "certainty if one of the models that agree with the runs is right.",
          found.computation, found.communication),
      "Communication that backward hides completely is not seen here, and may be exposed with more "
      "ranks."};
  section.table.columns = {kRanks,
                           {"step", "step, ms", Show::milliseconds},
                           {"step_low", "from", Show::milliseconds},
                           {"step_high", "to", Show::milliseconds},
                           {"efficiency", "efficiency", Show::percent},
                           {"efficiency_low", "from", Show::percent},
                           {"efficiency_high", "to", Show::percent},
                           {"communication", "exposed comm and waiting", Show::percent}};
  for (const auto& point : found.points) {
    section.table.rows.push_back({double(point.ranks), point.seconds, point.seconds_interval.least,
                                  point.seconds_interval.most, point.efficiency,
                                  point.efficiency_interval.least, point.efficiency_interval.most,
                                  point.communication});
  }
  return section;
}

Section overlap_section(const Scaling& scaling) {
  Section section{"overlap", "Overlap of communication with backward", {}, {}, {}};
  RankChart chart;
  chart.title = "Overlap";
  chart.description =
      "The fraction of the communication that backward hides, over the number of ranks.";
  chart.percent = true;
  section.table.columns = {kRanks,
                           {"overlap_ratio", "overlap", Show::percent},
                           {"exposed_comm", "exposed, ms", Show::milliseconds},
                           {"bytes_per_step", "bytes per step", Show::count},
                           {"busbw_GBps", "bus GB/s", Show::significant}};
  for (const auto& point : scaling.points) {
    const RunRecord& run = point.median;
    const auto& overlap = run.overlap_ratio;
    section.table.rows.push_back({double(point.world_size), cell_of(overlap),
                                  cell_of(run.step.parts[index_of(Phase::exposed_comm)]),
                                  cell_of(run.bytes_per_step), cell_of(run.busbw_GBps)});
    if (overlap) chart.points.push_back({point.world_size, *overlap, {}, {}, percent(*overlap)});
  }
  if (!chart.points.empty()) section.charts = {chart};
  section.paragraphs = {
      "A single rank does not communicate. Bus bandwidth is what each rank sends and receives in a "
      "ring, 2(n-1)/n times the bytes, per second of communication."};
  return section;
}

Section runs_section(const Scaling& scaling) {
  Section section{"runs", "Runs", {}, {}, {}};
  section.table.columns = {kRanks,
                           {"source", "run", Show::text},
                           {"started", "started", Show::text},
                           {"nodes", "nodes", Show::count},
                           {"global_batch", "global batch", Show::count},
                           {"steps", "steps", Show::count},
                           {"samples_per_second", "samples/s", Show::significant},
                           {"train_loss", "training loss", Show::significant},
                           {"eval_accuracy", "accuracy", Show::percent},
                           {"parameters_crc32c", "parameters", Show::text}};
  for (const auto& point : scaling.points) {
    for (const auto& run : point.runs) {
      section.table.rows.push_back(
          {double(run.world_size), run.source, day_and_time(run.started_unix), double(run.nodes),
           cell_of(run.global_batch), cell_of(run.steps), cell_of(run.samples_per_second),
           cell_of(run.train_loss), cell_of(run.eval_accuracy), run.parameters_crc32c});
    }
  }
  return section;
}

}  // namespace ddp::report
