// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace ddp::report {
namespace {

std::vector<double> values_of(const ScalingPoint& group, Metric metric) {
  std::vector<double> values;
  values.reserve(group.runs.size());
  for (const auto& run : group.runs) {
    if (const auto value = value_of(run, metric)) values.push_back(*value);
  }
  return values;
}

std::string runs_text(std::size_t count) {
  return counted(count, "run");
}

}  // namespace

const MetricName& name_of(Metric metric) {
  return *std::find_if(kMetricNames.begin(), kMetricNames.end(),
                       [metric](const MetricName& name) { return name.metric == metric; });
}

std::optional<Metric> metric_of(std::string_view name) {
  for (const auto& entry : kMetricNames) {
    if (entry.name == name) return entry.metric;
  }
  return std::nullopt;
}

std::optional<double> value_of(const RunRecord& run, Metric metric) {
  switch (metric) {
    case Metric::time:
      if (!run.samples_per_second || *run.samples_per_second <= 0) return std::nullopt;
      return 1 / *run.samples_per_second;
    case Metric::p50:
      return run.step.p50;
    case Metric::p95:
      return run.step.p95;
    case Metric::memory:
      break;
  }
  std::optional<double> most;
  for (const auto& rank : run.ranks) {
    if (rank.peak_memory_bytes) most = std::max(most.value_or(0), *rank.peak_memory_bytes);
  }
  return most;
}

Comparison compare(const ScalingPoint& a, const ScalingPoint& b, Metric metric) {
  const auto from = values_of(a, metric);
  const auto to = values_of(b, metric);
  return {metric, from.size(), to.size(), change_of(from, to)};
}

std::string sentence_of(const Comparison& comparison) {
  const auto& name = name_of(comparison.metric);
  if (!comparison.change) {
    return fmt::format(
        "{} and {} with a {} do not show how much runs differ by chance; give four or more, such "
        "as two before and two after a change",
        runs_text(comparison.runs_a), runs_text(comparison.runs_b), name.title);
  }
  const std::string title =
      comparison.metric == Metric::time ? "" : fmt::format("{}: ", name.title);
  return fmt::format(
      "{}{}, by {} and {}", title,
      sentence_of(*comparison.change, std::string(name.more), std::string(name.less)),
      comparison.runs_a, runs_text(comparison.runs_b));
}

}  // namespace ddp::report
