// SPDX-License-Identifier: Apache-2.0
// The best evaluations of a run so far, and the number of evaluations since. No side effects.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "ddp_runtime/train/objective/best_metric.h"
#include "ddp_runtime/train/objective/evaluation_result.h"

namespace ddp::train {

// The best value of one metric. Lower costs are better.
struct BestValue {
  std::optional<double> cost;     // nullopt before the first evaluation
  std::int64_t epochs_since = 0;  // evaluations since the best one

  // Records an evaluation. Returns whether it is the best so far; NaN never is.
  bool record(double next) {
    const bool better = std::isfinite(next) && (!cost || next < *cost);
    if (better) cost = next;
    epochs_since = better ? 0 : epochs_since + 1;
    return better;
  }

  // Returns whether to stop early. A patience of 0 disables early stopping.
  bool exhausted(std::int64_t patience) const noexcept {
    return patience > 0 && epochs_since >= patience;
  }
};

// By each metric, so that a run may resume with the other one.
struct BestEvaluation {
  BestValue loss;
  BestValue accuracy;  // its cost is the negated accuracy

  const BestValue& by(BestMetric metric) const noexcept {
    return metric == BestMetric::loss ? loss : accuracy;
  }
  // Returns whether it is the best so far by this metric.
  bool record(const Evaluation& evaluation, BestMetric metric) {
    const bool lowest_loss = loss.record(evaluation.loss);
    const bool highest_accuracy = accuracy.record(-evaluation.accuracy);
    return metric == BestMetric::loss ? lowest_loss : highest_accuracy;
  }
};

}  // namespace ddp::train
