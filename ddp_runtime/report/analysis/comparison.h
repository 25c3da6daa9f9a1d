// SPDX-License-Identifier: Apache-2.0
// Compares one figure of two groups of runs, each of one work on one number of ranks. No side
// effects.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp_runtime/report/analysis/scaling.h"
#include "ddp_runtime/report/analysis/significance.h"
#include "ddp_runtime/report/record/run_record.h"

namespace ddp::report {

// What can be compared. More is worse.
enum class Metric {
  time,    // per sample
  p50,     // of a step
  p95,     // of a step
  memory,  // the largest peak of a rank
};

struct MetricName {
  Metric metric;
  std::string_view name;  // on the command line
  std::string_view title;
  std::string_view more;  // what the group is whose figure is larger
  std::string_view less;
};

inline constexpr std::array kMetricNames = {
    MetricName{Metric::time, "time", "time per sample", "slower", "faster"},
    MetricName{Metric::p50, "p50", "median step time", "higher", "lower"},
    MetricName{Metric::p95, "p95", "95th percentile of the step time", "higher", "lower"},
    MetricName{Metric::memory, "memory", "peak memory of a rank", "higher", "lower"},
};

const MetricName& name_of(Metric metric);
// nullopt if no metric has that name.
std::optional<Metric> metric_of(std::string_view name);
// nullopt if the run does not record it.
std::optional<double> value_of(const RunRecord& run, Metric metric);

struct Comparison {
  Metric metric = Metric::time;
  std::size_t runs_a = 0;  // runs that record the metric
  std::size_t runs_b = 0;
  std::optional<Change> change;  // nullopt: see change_of()
};

Comparison compare(const ScalingPoint& a, const ScalingPoint& b, Metric metric);

// "B is 5.2 % (3.9 % to 6.5 %) slower than A, by 5 and 5 runs"; for other metrics than the time,
// their title comes first. Without a change: why there is none.
std::string sentence_of(const Comparison& comparison);

}  // namespace ddp::report
