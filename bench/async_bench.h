// What bounded staleness gains and costs where ranks are held up now and then: the same training,
// synchronous and with several bounds, with the same steps of the same ranks made slow.
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
  double sleep_ms = 30;          // how long a slow step is held up
  std::int64_t sleep_every = 8;  // one step of so many is slow, chosen by chance, of each rank
};

// Collective. Trains the default mlp on the digits that come with the project. Rank 0 gets, for the
// synchronous run (staleness null) and each bound: the loss of every step, the seconds after which
// the last rank began it, and how the model ended.
nlohmann::json run_async_bench(comm::World& world, const AsyncBenchOptions& options);

}  // namespace ddp::bench
