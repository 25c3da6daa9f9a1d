// Who sends what to whom and when, in one run of a schedule: what pictures of it are drawn from.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "ddp_runtime/comm/link.h"
#include "ddp_runtime/comm/world.h"

namespace ddp::bench {

struct TimelineOptions {
  std::string schedule = "ring";  // ring, doubling or chain
  double kib = 1024;              // of float32 on each rank
  comm::LinkLimits limits;
};

// Collective; needs MPI and two ranks. All-reduces once to warm up and once more recorded. Rank 0
// gets {"messages": [{"from", "to", "bytes", "posted", "arrived"}]}, in the order of posting, with
// seconds since the first was posted. The clocks of ranks compare only within one machine.
nlohmann::json run_timeline(comm::World& world, const TimelineOptions& options);

}  // namespace ddp::bench
