// SPDX-License-Identifier: Apache-2.0
// The time of a training step, compared with the same step without this runtime and with Python's.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/python_peer.h"
#include "bench/training_loop.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"

namespace ddp::bench {

struct StepBenchOptions {
  models::ModelOptions model;
  Computation how;           // of all loops, Python's too
  std::int64_t batch = 64;   // per rank
  std::int64_t steps = 100;  // measured steps of each variant
  std::int64_t block = 10;   // steps of one variant before the next one runs
  double link_gbit = 0;      // rate of each node's link in Gbit/s, for the limit; 0: unknown
  bool with_python = true;
  PythonPeerOptions python;
  BucketLimits buckets;
  std::string hook = {};  // a communication hook to compare with: see hooks::by_name
  // Measures this optimizer, as ddp::optim's in our loop and libtorch's in the others, and our loop
  // also with the update after all gradients. Empty: all loops use libtorch's SGD with momentum.
  std::string optimizer = {};
  // Compares also our step and Python's whose ranks divide this among themselves: the "optimizer",
  // the "gradients" or the "parameters". Empty: no such steps.
  std::string shard;
  // Compares also our local steps, whose parameters are averaged after this many of them, of which
  // a block is a multiple. 0: no such steps.
  std::int64_t local_steps = 0;
  // Whether our step is the trainer's as a graph, compared with our eager one, too. For a device.
  bool graph = false;
};

// Collective. Alternates blocks of a plain libtorch loop, of this runtime and of Python's
// DistributedDataParallel, each on one batch repeatedly. Rank 0 gets percentiles of the slowest
// rank's step times and of the ratios between blocks of one round. The plain loop does not
// communicate, so it is the lower limit of any data-parallel step on this machine. A device runs
// behind the host, so a block of steps is timed as a whole there, and each step has its mean.
nlohmann::json run_step_bench(comm::World& world, const StepBenchOptions& options);

}  // namespace ddp::bench
