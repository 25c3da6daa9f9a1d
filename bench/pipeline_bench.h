// SPDX-License-Identifier: Apache-2.0
// The time of a step of a model in stages, compared with what its stages take alone, with data
// parallelism on the same ranks, and with PyTorch's pipelines.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/python_peer.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"

namespace ddp::bench {

struct PipelineBenchOptions {
  models::ModelOptions model;
  std::int64_t batch = 64;  // per rank: a step has so many samples times the number of ranks
  int micro_batches = 8;
  int stages_per_rank = 2;   // of the schedule interleaved
  std::int64_t steps = 100;  // measured steps of each variant
  std::int64_t block = 10;   // steps of one variant before the next one runs
  std::string optimizer = "sgd";
  bool with_python = true;
  PythonPeerOptions python;
  BucketLimits buckets;
};

// Collective. Alternates blocks of all schedules, of the stages without messages, of stages that
// compute nothing, of data parallelism, and of PyTorch's pipelines. Rank 0 gets percentiles of the
// times, and of the ratios between blocks of one round.
nlohmann::json run_pipeline_bench(comm::World& world, const PipelineBenchOptions& options);

}  // namespace ddp::bench
