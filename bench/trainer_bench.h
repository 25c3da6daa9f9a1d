// SPDX-License-Identifier: Apache-2.0
// What the trainer and a program's callbacks add to a training step.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"

namespace ddp::bench {

struct TrainerBenchOptions {
  models::ModelOptions model;
  std::int64_t batch = 64;   // per rank
  std::int64_t steps = 100;  // measured steps of each variant
  std::int64_t block = 10;   // steps of one variant before the next one runs
  BucketLimits buckets;
};

// Collective. Alternates blocks of the trainer with callbacks, a log and a line per step; of the
// trainer alone; and of a loop of one's own with the same model and optimizer. A step of the
// trainer lasts from the beginning of its forward to that of the next step. Rank 0 gets percentiles
// of the slowest rank's times and of the ratios between blocks of one round.
nlohmann::json run_trainer_bench(comm::World& world, const TrainerBenchOptions& options);

}  // namespace ddp::bench
