// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/scaling_intervals.h"

#include <algorithm>
#include <cmath>

#include "ddp_runtime/report/analysis/sample.h"
#include "ddp_runtime/report/analysis/student.h"

namespace ddp::report {
namespace {

std::vector<double> logarithms(const ScalingPoint& point) {
  std::vector<double> values;
  for (const auto& run : point.runs) {
    if (const auto value = throughput(run)) values.push_back(std::log(*value));
  }
  return values;
}

std::vector<const StepSeconds*> steps_of(const ScalingPoint& point) {
  std::vector<const StepSeconds*> steps;
  for (const auto& run : point.runs) {
    if (run.step.mean) steps.push_back(&run.step);
  }
  return steps;
}

}  // namespace

Noise noise_of(const std::vector<ScalingPoint>& points) {
  Noise noise;
  for (const auto& point : points) {
    const auto sample = sample_of(logarithms(point));
    noise.squares += sample.squares;
    noise.degrees += std::max(sample.count - 1, 0.0);
  }
  return noise;
}

std::optional<Interval> efficiency_interval(const ScalingPoint& base, const ScalingPoint& point,
                                            const Noise& noise) {
  const auto from = sample_of(logarithms(base));
  const auto to = sample_of(logarithms(point));
  if (!noise.is_known() || from.count == 0 || to.count == 0) return std::nullopt;
  const bool is_base = point.world_size == base.world_size;
  const double share = static_cast<double>(base.world_size) / point.world_size;
  const double middle = share * std::exp(to.mean - from.mean);
  const double half = student_95th(noise.degrees) * noise.deviation() *
                      std::sqrt(1 / to.count + (is_base ? 0 : 1 / from.count));
  return Interval{middle * std::exp(-half), middle * std::exp(half)};
}

std::optional<std::array<Interval, kPhases>> loss_intervals(const ScalingPoint& base,
                                                            const ScalingPoint& point,
                                                            double share) {
  const auto from = steps_of(base);
  const auto to = steps_of(point);
  if (from.size() < 2 || to.size() < 2) return std::nullopt;
  const auto values = [](const std::vector<const StepSeconds*>& steps, const auto& value) {
    std::vector<double> list;
    list.reserve(steps.size());
    for (const auto* step : steps) list.push_back(value(*step));
    return sample_of(list);
  };
  const double whole = values(to, [](const auto& step) { return *step.mean; }).mean;
  std::array<Interval, kPhases> intervals;
  for (const auto& [phase, key, name, brief] : kPhaseNames) {
    const auto at_base =
        values(from, [&, p = phase](const auto& step) { return share * step.part(p) / whole; });
    const auto here = values(to, [&, p = phase](const auto& step) { return step.part(p) / whole; });
    const double loss = here.mean - at_base.mean;
    // A ratio to a step that varies, too: what a run adds to the numerator beyond its step's part.
    auto residual = values(to, [&, p = phase](const auto& step) {
      return (step.part(p) - loss * *step.mean) / whole;
    });
    residual.mean = here.mean;
    intervals[index_of(phase)] = interval_of_difference(residual, at_base, student_95th);
  }
  return intervals;
}

}  // namespace ddp::report
