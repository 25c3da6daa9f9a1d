// SPDX-License-Identifier: Apache-2.0
// The interval between checkpoints with the least loss.
#pragma once

#include <cmath>

namespace ddp {

// A run that saves every T seconds loses stall / T of its time to saves, and on average T / 2 per
// failure. The sum is smallest for this T (J. W. Young, "A first order approximation to the optimum
// checkpoint interval", CACM 17, 1974). `stall`: seconds that a save stops training; `mtbf`: mean
// time between failures of the whole job.
inline double young_interval(double stall, double mtbf) noexcept {
  return std::sqrt(2 * stall * mtbf);
}

}  // namespace ddp
