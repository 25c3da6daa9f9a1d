// SPDX-License-Identifier: Apache-2.0
// Benefits and costs of bounded staleness when ranks are delayed from time to time: the same
// training, synchronous and with several bounds, with the same slow steps on the same ranks.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "ddp_runtime/comm/world.h"

namespace ddp::bench {

struct AsyncBenchOptions {
  std::vector<std::int64_t> staleness = {0, 4, 16};
  std::int64_t epochs = 20;
  std::int64_t batch = 16;  // per rank
  double learning_rate = 0.05;
  double momentum = 0.9;
  double sleep_ms = 30;          // delay of a slow step
  std::int64_t sleep_every = 8;  // on each rank, on average one step in N is slow (random)
};

// Collective. Trains the default mlp on the digits that come with the project. For the synchronous
// run (staleness null) and for each bound, rank 0 gets the loss of every step, the time at which
// the last rank started it, and the final quality of the model.
nlohmann::json run_async_bench(comm::World& world, const AsyncBenchOptions& options);

}  // namespace ddp::bench
