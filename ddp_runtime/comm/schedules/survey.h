// SPDX-License-Identifier: Apache-2.0
// Measures the network of a group before the first collective that is large enough to need the
// result. This takes a few dozen messages and a few milliseconds.
#pragma once

#include <string_view>

#include "ddp_runtime/comm/group/subgroup.h"
#include "ddp_runtime/comm/node/node_map.h"
#include "ddp_runtime/comm/schedules/schedules.h"
#include "ddp_runtime/comm/transport/link.h"
#include "ddp_runtime/comm/transport/network_model.h"

namespace ddp::comm::schedules {

struct Surroundings {
  NetworkModel network;  // the same on all ranks
  NodeMap nodes;
};

// Collective over `all_ranks`, which has at least two ranks. `node_key` is the same on all ranks of
// one node and different on any other node. If `source` requests a measurement, measures latency
// and bandwidth, between nodes if there are several, while all ranks of a node send at the same
// time. Each rank takes the fastest of a few tries, so that a busy CPU does not count as a slow
// network, and the result is the median over the ranks.
Surroundings survey(Link& link, const Subgroup& all_ranks, std::string_view node_key,
                    const NetworkSource& source, Scratch& scratch);

}  // namespace ddp::comm::schedules
