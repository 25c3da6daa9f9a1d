// SPDX-License-Identifier: Apache-2.0
#include "bench/statistics.h"

#include <algorithm>
#include <span>

#include "ddp_runtime/profile/step_recorder.h"

namespace ddp::bench {

double median(const std::vector<double>& values) {
  return profile::percentile(values, 0.5);
}

nlohmann::json percentiles(const std::vector<double>& values) {
  return {{"p10", profile::percentile(values, 0.1)},
          {"p50", profile::percentile(values, 0.5)},
          {"p90", profile::percentile(values, 0.9)}};
}

std::vector<double> slowest(comm::Group& group, std::vector<double> seconds) {
  group.all_reduce(comm::buffer_of(std::span(seconds)), comm::ReduceOp::max, "times").wait();
  return seconds;
}

std::vector<double> block_ratios(const std::vector<double>& ours, const std::vector<double>& theirs,
                                 std::int64_t block) {
  const auto width = static_cast<std::ptrdiff_t>(block);
  const auto end = static_cast<std::ptrdiff_t>(std::min(ours.size(), theirs.size()));
  const auto median_at = [width](const std::vector<double>& values, std::ptrdiff_t at) {
    return median({values.begin() + at, values.begin() + at + width});
  };
  std::vector<double> ratios;
  for (std::ptrdiff_t at = 0; at + width <= end; at += width) {
    ratios.push_back(median_at(ours, at) / median_at(theirs, at));
  }
  return ratios;
}

}  // namespace ddp::bench
