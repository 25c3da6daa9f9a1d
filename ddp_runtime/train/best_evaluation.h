// SPDX-License-Identifier: Apache-2.0
// The best evaluation of a run so far, and the number of evaluations since. No side effects.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

namespace ddp::train {

struct BestEvaluation {
  std::optional<double> loss;     // nullopt before the first evaluation
  std::int64_t epochs_since = 0;  // evaluations since the best one

  // Records an evaluation. Returns whether it is the best so far; NaN never is.
  bool record(double next) {
    const bool better = std::isfinite(next) && (!loss || next < *loss);
    if (better) loss = next;
    epochs_since = better ? 0 : epochs_since + 1;
    return better;
  }

  // Returns whether to stop early. A patience of 0 disables early stopping.
  bool exhausted(std::int64_t patience) const noexcept {
    return patience > 0 && epochs_since >= patience;
  }
};

}  // namespace ddp::train
