// SPDX-License-Identifier: Apache-2.0
// Figures of several runs, as far as intervals around their mean need them.
#pragma once

#include <optional>
#include <span>

namespace ddp::report {

struct Sample {
  double count = 0;
  double mean = 0;     // 0 if there are no values
  double squares = 0;  // sum of the squared differences from the mean
};

Sample sample_of(std::span<const double> values);

// The range that contains the truth in most cases; each user says in how many.
struct Interval {
  double least = 0;
  double most = 0;

  bool contains(double value) const { return least <= value && value <= most; }
};

// The interval around the difference of the means, `to` minus `from`, of two samples with noise of
// their own (Welch's test). `percentile`: of Student's distribution, such as student_95th. Each
// sample must have two values or more.
Interval interval_of_difference(const Sample& to, const Sample& from, double (*percentile)(double));

// The same of samples with the same noise, which then may have one value each; nullopt with fewer
// than four values in all.
std::optional<Interval> interval_of_equal_noise(const Sample& to, const Sample& from,
                                                double (*percentile)(double));

}  // namespace ddp::report
