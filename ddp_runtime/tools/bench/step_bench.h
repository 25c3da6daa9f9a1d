// How long a training step takes, beside the same step without any of our code.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/bucket_plan.h"

namespace ddp::bench {

struct StepBenchOptions {
  models::ModelOptions model;
  std::int64_t batch = 64;   // per rank
  std::int64_t steps = 100;  // measured ones, of each kind
  std::int64_t block = 10;   // steps of one kind before the other takes its turn
  BucketLimits buckets;
};

// Collective. Runs a plain libtorch loop and ours in turns, on the same batch, and gives for both
// the percentiles of the slowest rank's step times. The plain loop does not communicate: it is the
// lower limit of any data-parallel step on this machine. Rank 0 gets the result.
nlohmann::json run_step_bench(comm::World& world, const StepBenchOptions& options);

}  // namespace ddp::bench
