// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/schedules/node_parts.h"

#include <algorithm>

#include "ddp_runtime/comm/schedules/node_copies.h"
#include "ddp_runtime/comm/schedules/node_lanes.h"

namespace ddp::comm::schedules {
namespace {

Copies part_of_copies(const Copies& copies, const Starts& starts, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return slice(copies, starts[r], starts[r + 1] - starts[r]);
}

// Each chunk is finished in the copy of the rank at its place. Copies what is in this rank's part.
void collect_part(const NodeMap& map, const Copies& copies, const Starts& starts, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  const Buffer& mine = copies[map.place];
  for (std::size_t place = 0; place < map.lanes; ++place) {
    const Chunk chunk = lane_chunk(map, place, mine);
    const std::size_t first = std::max(chunk.first, starts[r]);
    const std::size_t last = std::min(chunk.first + chunk.count, starts[r + 1]);
    if (first >= last) continue;
    copy_to({mine.slice(first, last - first)}, copies[place].slice(first, last - first));
  }
}

}  // namespace

void node_reduce_to_parts(Link& link, NodeMemory& node, const SharedRegion& region,
                          std::size_t offset, Buffer data, const Starts& starts, ReduceOp op,
                          bool in_order, Scratch& scratch, const CostModel& model) {
  const NodeMap& map = node.map();
  const Copies copies = copies_of(region, offset, data);
  node.wait_for_all(link);  // now every copy holds its rank's values
  if (map.nodes.size() == 1) {
    const Copies part = part_of_copies(copies, starts, link.rank());
    add_up({}, part, {part[map.place]}, op);
  } else {
    const auto [first, count] = lane_chunk(map, map.place, data);
    const Copies chunk = slice(copies, first, count);
    reduce_lane(link, map, chunk, {chunk[map.place]}, op, in_order, scratch, model);
    node.wait_for_all(link);  // now every chunk is finished
    collect_part(map, copies, starts, link.rank());
  }
  node.wait_for_all(link);  // now no rank reads another one's copy
}

void node_gather_parts(Link& link, NodeMemory& node, const SharedRegion& region, std::size_t offset,
                       Buffer data, const Starts& starts) {
  const NodeMap& map = node.map();
  const Copies copies = copies_of(region, offset, data);
  node.wait_for_all(link);  // now every copy holds its rank's part
  for (std::size_t place = 0; place < copies.size(); ++place) {
    const int rank = map.local()[place];
    copy_to({part_of(copies[map.place], starts, rank)}, part_of(copies[place], starts, rank));
  }
  node.wait_for_all(link);  // now no rank reads another one's copy
}

void node_gather_into(Link& link, NodeMemory& node, const SharedRegion& region, std::size_t offset,
                      Buffer output, const Starts& starts) {
  node.wait_for_all(link);  // now every part holds its rank's values
  const auto local = node.map().local();
  for (std::size_t place = 0; place < region.copies.size(); ++place) {
    const Buffer there = part_of(output, starts, local[place]);
    copy_to({there}, {region.copies[place] + offset, there.count, there.type});
  }
  node.wait_for_all(link);  // now no rank reads another one's part
}

}  // namespace ddp::comm::schedules
