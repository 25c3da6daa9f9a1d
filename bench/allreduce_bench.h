// SPDX-License-Identifier: Apache-2.0
// The speed of reducing gradients, compared with the MPI library's own all-reduce, with Gloo if it
// is built in, and with the physical limit.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

#include "ddp_runtime/comm/world.h"

namespace ddp::bench {

struct AllreduceBenchOptions {
  double mib = 64;  // MiB of float32 per rank
  int rounds = 20;  // of each variant, alternating
};

// Collective; rank 0 gets the result. Each time is that of the slowest rank. "memcpy" copies as
// many bytes on all ranks at the same time: within one machine, nothing that touches all bytes can
// be faster.
nlohmann::json run_allreduce_bench(comm::World& world, const AllreduceBenchOptions& options);

}  // namespace ddp::bench
