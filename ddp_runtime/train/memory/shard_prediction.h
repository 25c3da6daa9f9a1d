// SPDX-License-Identifier: Apache-2.0
// What dividing a run among its ranks should cost, for run.json and for the table of a dry run. No
// side effects, and no torch.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/sharded/plan/shard_costs.h"

namespace ddp::train {

struct ShardPrediction {
  ShardStrategy chosen = ShardStrategy::none;
  std::vector<ShardStrategy> possible = {};  // with this model, `chosen` among them
  TrainingSizes sizes = {};
  RankLayout layout = {};
  std::string reduce_type = "auto";  // see reduce_type_name()
};

// The object `sharding` of run.json. `measured_peak`: see StepMemory; the largest of all ranks.
nlohmann::json sharding_of_report(const ShardPrediction& prediction,
                                  std::optional<std::int64_t> measured_peak);

// One line per strategy, with the measured peak beside the chosen one, and what the numbers mean.
// Ends with a line break.
std::string strategy_table(const ShardPrediction& prediction,
                           std::optional<std::int64_t> measured_peak);

}  // namespace ddp::train
