// SPDX-License-Identifier: Apache-2.0
// The memory that training takes, compared with the same loop without this runtime in a separate
// process, and with what dividing it among the ranks should cost.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"

namespace ddp::bench {

struct MemoryBenchOptions {
  models::ModelOptions model;
  std::int64_t batch = 64;  // per rank
  BucketLimits buckets;
  // Command that prints measure_plain_memory() for the same model on one line.
  std::vector<std::string> plain_command;
  std::string shard;  // see TrainingLoop::shard(); empty: nothing is divided
};

// Bytes that the plain loop allocates in this process: "after_step_3", the "peak_of_a_step" after
// that, and the "peak" from the start. Shared memory counts in full; "of_others" is the part of
// other processes, which have touched the same pages.
nlohmann::json measure_plain_memory(const models::ModelOptions& model, std::int64_t batch);

// Collective. Measures this runtime's loop in this process, which must not have trained before.
// Rank 0 gets the result of the rank with the largest memory.
nlohmann::json run_memory_bench(comm::World& world, const MemoryBenchOptions& options);

}  // namespace ddp::bench
