// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/schedules/node_lanes.h"

#include <algorithm>

#include "ddp_runtime/comm/schedules/chain.h"
#include "ddp_runtime/comm/schedules/choice.h"

namespace ddp::comm::schedules {

Chunk lane_chunk(const NodeMap& map, std::size_t place, const Buffer& data) {
  if (place >= map.lanes) return {};
  const std::size_t line = 64 / size_of(data.type);
  const std::size_t lines = (data.count + line - 1) / line;
  const Starts starts = even_starts(lines, static_cast<int>(map.lanes));
  const std::size_t first = std::min(starts[place] * line, data.count);
  const std::size_t last = std::min(starts[place + 1] * line, data.count);
  return {first, last - first};
}

void reduce_lane(Link& link, const NodeMap& map, const Copies& chunk, const Copies& into,
                 ReduceOp op, bool in_order, Scratch& scratch, const CostModel& model) {
  if (chunk.front().count == 0) return;
  const Buffer mine = chunk[map.place];
  const Subgroup lane = map.lane_subgroup();
  if (in_order) {
    const auto contribute = [&](std::size_t first, std::size_t count,
                                std::span<std::byte> incoming) {
      add_up(incoming, slice(chunk, first, count), {mine.slice(first, count)}, op);
    };
    const auto finished = [&](std::size_t first, std::size_t count) {
      copy_to(slice(into, first, count), mine.slice(first, count));
    };
    return chain(link, lane, mine, scratch, contribute, finished);
  }
  add_up({}, chunk, {mine}, op);
  all_reduce(link, lane, mine, op, scratch, model);
  copy_to(into, mine);
}

}  // namespace ddp::comm::schedules
