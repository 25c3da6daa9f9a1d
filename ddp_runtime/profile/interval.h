// SPDX-License-Identifier: Apache-2.0
// Total length of unions and intersections of time intervals, to compute overlap.
#pragma once

#include <chrono>
#include <vector>

namespace ddp::profile {

using Clock = std::chrono::steady_clock;

struct Interval {
  Clock::time_point begin;
  Clock::time_point end;  // an interval that ends before it starts is empty
};

// Sorted, disjoint intervals that cover the same points.
std::vector<Interval> merged(std::vector<Interval> intervals);

// Seconds covered by at least one interval.
double covered_seconds(const std::vector<Interval>& intervals);

// Seconds within `window` covered by `intervals`.
double covered_seconds_within(const std::vector<Interval>& intervals, Interval window);

}  // namespace ddp::profile
