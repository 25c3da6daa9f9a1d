// SPDX-License-Identifier: Apache-2.0
// All-reduce of memory shared by the ranks of a node.
//
// The buffer is cut into one chunk per lane. The rank at place p of each node adds up chunk p over
// the copies of its node, reading the other ranks' copies in place. With more than one node, the
// ranks at place p of all nodes then reduce chunk p among themselves, so that each byte crosses the
// wire once per node and all ranks of a node drive the wire together. Finally each rank writes its
// finished chunk into all copies of its node. With L ranks on one node, each reads S bytes and
// writes S bytes, which is the cost of one memcpy, and nothing is sent.
#pragma once

#include <cstddef>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/comm/node/node_memory.h"
#include "ddp_runtime/comm/schedules/schedules.h"
#include "ddp_runtime/comm/transport/link.h"

namespace ddp::comm::schedules {

// `offset` is where `data` begins in the region. With `in_order`, the additions follow the order of
// the ranks, as in schedules/chain.h; the node map must then be in rank order.
void node_all_reduce(Link& link, NodeMemory& node, const SharedRegion& region, std::size_t offset,
                     Buffer data, ReduceOp op, bool in_order, Scratch& scratch,
                     const CostModel& model);

}  // namespace ddp::comm::schedules
