// SPDX-License-Identifier: Apache-2.0
// The best evaluation of a run so far, and how long ago it was. Pure.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace ddp::train {

struct BestEvaluation {
  std::optional<double> loss;     // nullopt before the first one
  std::int64_t epochs_since = 0;  // evaluations since, none of them better

  // Adds the next evaluation. Returns whether it is the best so far; NaN never is.
  bool record(double next) {
    const bool better = std::isfinite(next) && (!loss || next < *loss);
    if (better) loss = next;
    epochs_since = better ? 0 : epochs_since + 1;
    return better;
  }

  // Whether to stop early; with a patience of 0 never.
  bool exhausted(std::int64_t patience) const noexcept {
    return patience > 0 && epochs_since >= patience;
  }
};

}  // namespace ddp::train
