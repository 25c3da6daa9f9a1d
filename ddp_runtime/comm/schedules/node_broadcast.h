// SPDX-License-Identifier: Apache-2.0
// Broadcasts first between nodes, to one rank of each, then within each node. The data crosses the
// wire once per node, regardless of the placement of ranks.
#pragma once

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/comm/node/node_map.h"
#include "ddp_runtime/comm/schedules/choice.h"
#include "ddp_runtime/comm/transport/link.h"

namespace ddp::comm::schedules {

// Collective over all ranks of `map`.
void node_broadcast(Link& link, const NodeMap& map, Buffer data, int root, const CostModel& model);

}  // namespace ddp::comm::schedules
