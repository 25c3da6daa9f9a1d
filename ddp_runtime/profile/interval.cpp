// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/interval.h"

#include <algorithm>

namespace ddp::profile {

std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::erase_if(intervals, [](const Interval& i) { return i.end <= i.begin; });
  std::sort(intervals.begin(), intervals.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> result;
  for (const Interval& interval : intervals) {
    if (!result.empty() && interval.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, interval.end);
    } else {
      result.push_back(interval);
    }
  }
  return result;
}

double covered_seconds(const std::vector<Interval>& intervals) {
  double total = 0;
  for (const Interval& interval : merged(intervals)) {
    total += std::chrono::duration<double>(interval.end - interval.begin).count();
  }
  return total;
}

double covered_seconds_within(const std::vector<Interval>& intervals, Interval window) {
  std::vector<Interval> clipped;
  clipped.reserve(intervals.size());
  for (const Interval& interval : intervals) {
    clipped.push_back({std::max(interval.begin, window.begin), std::min(interval.end, window.end)});
  }
  return covered_seconds(clipped);
}

}  // namespace ddp::profile
