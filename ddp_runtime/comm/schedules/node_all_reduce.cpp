// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/schedules/node_all_reduce.h"

#include "ddp_runtime/comm/schedules/node_copies.h"
#include "ddp_runtime/comm/schedules/node_lanes.h"

namespace ddp::comm::schedules {

void node_all_reduce(Link& link, NodeMemory& node, const SharedRegion& region, std::size_t offset,
                     Buffer data, ReduceOp op, bool in_order, Scratch& scratch,
                     const CostModel& model) {
  const NodeMap& map = node.map();
  const auto [first, count] = lane_chunk(map, map.place, data);
  const Copies chunk = slice(copies_of(region, offset, data), first, count);
  node.wait_for_all(link);  // now every copy holds its rank's part
  if (map.nodes.size() == 1) {
    add_up({}, chunk, chunk, op);
  } else {
    reduce_lane(link, map, chunk, chunk, op, in_order, scratch, model);
  }
  node.wait_for_all(link);  // now every chunk is finished in every copy
}

}  // namespace ddp::comm::schedules
