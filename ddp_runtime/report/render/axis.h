// SPDX-License-Identifier: Apache-2.0
// Positions of numbers on an axis, and tick labels.
#pragma once

#include <vector>

namespace ddp::report {

// A linear or base-2 logarithmic map from [low, high] to pixels [from, to].
class Axis {
 public:
  Axis(double low, double high, double from, double to, bool logarithmic);
  double operator()(double value) const;

 private:
  double low_;
  double high_;
  double from_;
  double to_;
  bool logarithmic_;
};

// Round numbers from 0 to the first round number that is at least `high`; about five, at most
// eleven.
std::vector<double> linear_ticks(double high);

// Powers of two that enclose [low, high], with a tolerance of 3 %; both ends are positive. Uses
// only every second, third, .. power if there would be more than eight.
std::vector<double> binary_ticks(double low, double high);

}  // namespace ddp::report
