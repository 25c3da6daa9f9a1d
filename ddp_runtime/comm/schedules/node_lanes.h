// SPDX-License-Identifier: Apache-2.0
// The lanes of traffic between nodes whose ranks share memory: the ranks at one place of all nodes
// reduce one chunk of the buffer among themselves, so that each byte crosses the wire once per node
// and all ranks of a node drive the wire together.
#pragma once

#include <cstddef>

#include "ddp_runtime/comm/node/node_map.h"
#include "ddp_runtime/comm/schedules/node_copies.h"
#include "ddp_runtime/comm/schedules/schedules.h"
#include "ddp_runtime/comm/transport/link.h"

namespace ddp::comm::schedules {

// Elements of a buffer.
struct Chunk {
  std::size_t first = 0;
  std::size_t count = 0;
};

// The chunk of the lane of the ranks at `place`; empty if they have no lane. Chunks consist of
// whole cache lines, so that two lanes never write to the same line.
Chunk lane_chunk(const NodeMap& map, std::size_t place, const Buffer& data);

// Reduces this rank's chunk, of which `chunk` has the copies on this node, among the nodes, and
// writes the result to each of `into`; this rank's own copy is among them. With `in_order`, the
// additions follow the order of the ranks, as in schedules/chain.h; the node map must then be in
// rank order.
void reduce_lane(Link& link, const NodeMap& map, const Copies& chunk, const Copies& into,
                 ReduceOp op, bool in_order, Scratch& scratch, const CostModel& model);

}  // namespace ddp::comm::schedules
