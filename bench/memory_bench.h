// How much memory training takes, beside the same loop without any of our code in a process of its
// own.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/bucket_plan.h"

namespace ddp::bench {

struct MemoryBenchOptions {
  models::ModelOptions model;
  std::int64_t batch = 64;  // per rank
  BucketLimits buckets;
  // The command that prints measure_plain_memory() for the same model in a line.
  std::vector<std::string> plain_command;
};

// Bytes that the plain loop takes in this process beyond what it had before: "after_step_3", the
// "peak_of_a_step" later, and the "peak" from the beginning.
nlohmann::json measure_plain_memory(const models::ModelOptions& model, std::int64_t batch);

// Collective. The same for ours, in this process, which must not have trained before; the rank that
// takes most counts. Rank 0 gets the result.
nlohmann::json run_memory_bench(comm::World& world, const MemoryBenchOptions& options);

}  // namespace ddp::bench
