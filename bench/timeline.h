// SPDX-License-Identifier: Apache-2.0
// The times of all messages of one schedule, for drawing diagrams.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "ddp_runtime/comm/transport/link.h"
#include "ddp_runtime/comm/world.h"

namespace ddp::bench {

struct TimelineOptions {
  std::string schedule = "ring";  // ring, halving, doubling or chain
  double kib = 1024;              // KiB of float32 on each rank
  comm::LinkLimits limits;
};

// Collective; needs MPI and two ranks. Runs one all-reduce as a warm-up and records the second.
// Rank 0 gets {"messages": [{"from", "to", "bytes", "posted", "arrived"}]} in posting order, with
// times in seconds since the first message was posted. The ranks' clocks are comparable only within
// one machine.
nlohmann::json run_timeline(comm::World& world, const TimelineOptions& options);

}  // namespace ddp::bench
