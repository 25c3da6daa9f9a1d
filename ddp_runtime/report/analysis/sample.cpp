// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/sample.h"

#include <cmath>
#include <numeric>

namespace ddp::report {

Sample sample_of(std::span<const double> values) {
  Sample sample{static_cast<double>(values.size()), 0, 0};
  if (values.empty()) return sample;
  sample.mean = std::accumulate(values.begin(), values.end(), 0.0) / sample.count;
  for (const double value : values) {
    sample.squares += (value - sample.mean) * (value - sample.mean);
  }
  return sample;
}

Interval interval_of_difference(const Sample& to, const Sample& from,
                                double (*percentile)(double)) {
  const auto variance = [](const Sample& one) { return one.squares / (one.count - 1) / one.count; };
  const double a = variance(to);
  const double b = variance(from);
  const double sum = a + b;
  const double degrees =
      sum > 0 ? sum * sum / (a * a / (to.count - 1) + b * b / (from.count - 1)) : 1;
  const double half = percentile(degrees) * std::sqrt(sum);
  return {to.mean - from.mean - half, to.mean - from.mean + half};
}

std::optional<Interval> interval_of_equal_noise(const Sample& to, const Sample& from,
                                                double (*percentile)(double)) {
  constexpr double kLeastValues = 4;
  if (to.count == 0 || from.count == 0 || to.count + from.count < kLeastValues) return std::nullopt;
  const double degrees = to.count + from.count - 2;
  const double error =
      std::sqrt((to.squares + from.squares) / degrees * (1 / to.count + 1 / from.count));
  const double half = percentile(degrees) * error;
  return Interval{to.mean - from.mean - half, to.mean - from.mean + half};
}

}  // namespace ddp::report
