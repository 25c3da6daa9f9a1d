// SPDX-License-Identifier: Apache-2.0
// The object `pipeline` of run.json: how ranks shared a model as stages.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ddp::report {

struct PipelineRecord {
  struct Stage {
    std::string pieces;  // "blocks.0 to blocks.3"
    double parameters = 0;
    double seconds = 0;          // per step
    double computing_share = 0;  // of its ranks, on average
    double waiting_share = 0;
  };

  std::size_t ranks = 1;  // of one pipeline
  double pipelines = 1;
  std::string schedule;
  double micro_batches = 1;
  std::vector<Stage> stages;
  double predicted_idle_share = 0;   // if all stages took the same time
  double idle_share_of_balance = 0;  // with their times
  std::string better_balance;        // "3,4,4,3"; empty: none
  double better_idle_share = 0;
};

// Nullopt without stages. Throws InputError for anything that ddp-train does not write.
std::optional<PipelineRecord> read_pipeline(const nlohmann::json& run);

}  // namespace ddp::report
