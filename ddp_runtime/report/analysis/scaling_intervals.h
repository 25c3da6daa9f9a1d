// SPDX-License-Identifier: Apache-2.0
// The intervals of efficiencies and losses: see Note [Intervals of a sweep] in scaling.h. No side
// effects.
#pragma once

#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "ddp_runtime/report/analysis/scaling.h"

namespace ddp::report {

// The spread of the logarithm of one run's throughput, from repetitions.
struct Noise {
  double squares = 0;  // of the differences from the means
  double degrees = 0;  // of freedom

  bool is_known() const { return degrees >= 2; }
  double deviation() const { return std::sqrt(squares / degrees); }
};

Noise noise_of(const std::vector<ScalingPoint>& points);

std::optional<Interval> efficiency_interval(const ScalingPoint& base, const ScalingPoint& point,
                                            const Noise& noise);

// Of the loss to each phase. `share`: the work of a rank, as a fraction of a rank's of the base.
std::optional<std::array<Interval, kPhases>> loss_intervals(const ScalingPoint& base,
                                                            const ScalingPoint& point,
                                                            double share);

}  // namespace ddp::report
