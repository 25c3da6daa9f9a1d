// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/objective/best_metric.h"

#include <fmt/format.h>

#include "base/errors.h"

namespace ddp::train {

BestMetric parse_best_metric(const std::string& name) {
  if (name == "loss") return BestMetric::loss;
  if (name == "accuracy") return BestMetric::accuracy;
  throw UsageError(
      fmt::format("unknown metric '{}' of the best evaluation (--best-metric); use loss or "
                  "accuracy",
                  name));
}

}  // namespace ddp::train
