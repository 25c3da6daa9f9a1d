// SPDX-License-Identifier: Apache-2.0
// The value of an evaluation that decides which is better: for the best checkpoints, for early
// stopping and for EvaluationEvent::best.
#pragma once

#include <cstdint>
#include <string>

namespace ddp::train {

enum class BestMetric : std::uint8_t { loss, accuracy };

// Throws UsageError listing the valid values.
BestMetric parse_best_metric(const std::string& name);

}  // namespace ddp::train
