// What the ranks of a group learn about their network before the first collective that is large
// enough to need it: a few dozen messages, some milliseconds.
#pragma once

#include <string_view>

#include "ddp_runtime/comm/link.h"
#include "ddp_runtime/comm/network_model.h"
#include "ddp_runtime/comm/node/node_map.h"
#include "ddp_runtime/comm/schedules/schedules.h"
#include "ddp_runtime/comm/subgroup.h"

namespace ddp::comm::schedules {

struct Surroundings {
  NetworkModel network;  // the same on all ranks
  NodeMap nodes;
};

// Collective over `everyone`, which has at least two ranks. `node_key` is the same on the ranks of
// one node and nowhere else. A network is measured if `source` says so: latency and bandwidth are
// those between nodes, if there are several, with all ranks of a node sending at once; the fastest
// of a few tries on each rank, so that a busy processor does not count as a slow network, and the
// median of the ranks.
Surroundings survey(Link& link, const Subgroup& everyone, std::string_view node_key,
                    const NetworkSource& source, Scratch& scratch);

}  // namespace ddp::comm::schedules
