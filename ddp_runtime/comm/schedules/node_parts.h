// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and all-gather in place, of memory shared by the ranks of a node.
//
// On one node, each rank adds up its part over all copies, or copies the other ranks' parts from
// their copies: half of what node_all_reduce() reads and writes, and nothing is sent. The sums have
// its bits. Between several nodes, a reduce-scatter is an all-reduce whose result is not written
// back to all copies.
#pragma once

#include <cstddef>

#include "ddp_runtime/comm/node/node_memory.h"
#include "ddp_runtime/comm/schedules/schedules.h"
#include "ddp_runtime/comm/transport/link.h"

namespace ddp::comm::schedules {

// Both as for node_all_reduce(); `starts` has the parts of all ranks.
void node_reduce_to_parts(Link& link, NodeMemory& node, const SharedRegion& region,
                          std::size_t offset, Buffer data, const Starts& starts, ReduceOp op,
                          bool in_order, Scratch& scratch, const CostModel& model);
// For ranks that are all on one node.
void node_gather_parts(Link& link, NodeMemory& node, const SharedRegion& region, std::size_t offset,
                       Buffer data, const Starts& starts);
// The same into other memory: each rank's part is `offset` bytes behind the beginning of its copy.
void node_gather_into(Link& link, NodeMemory& node, const SharedRegion& region, std::size_t offset,
                      Buffer output, const Starts& starts);

}  // namespace ddp::comm::schedules
