// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/schedules/node_all_reduce.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "ddp_runtime/comm/host_reduce.h"
#include "ddp_runtime/comm/schedules/chain.h"
#include "ddp_runtime/comm/schedules/choice.h"
#include "ddp_runtime/comm/schedules/rounds.h"

namespace ddp::comm::schedules {
namespace {

// Small enough that a block stays in the L1 cache between reading and writing.
constexpr std::size_t kBlockBytes = 16384;

// All copies of one piece of the buffer, by place.
using Copies = std::vector<Buffer>;

Copies slice(const Copies& copies, std::size_t first, std::size_t count) {
  Copies part;
  part.reserve(copies.size());
  for (const Buffer& copy : copies) part.push_back(copy.slice(first, count));
  return part;
}

// Adds all copies, in order of place, to `before` (empty: the neutral element) and writes the sum
// to each of `into`. Works block by block, so that memory is read once and written once.
void add_up(std::span<const std::byte> before, const Copies& copies, const Copies& into,
            ReduceOp op) {
  alignas(64) std::array<std::byte, kBlockBytes> block;
  const std::size_t element = size_of(copies.front().type);
  const std::size_t per_block = kBlockBytes / element;
  const std::size_t count = copies.front().count;
  for (std::size_t at = 0; at < count; at += per_block) {
    const std::size_t n = std::min(per_block, count - at);
    const Buffer sum{block.data(), n, copies.front().type};
    const std::byte* const start =
        before.empty() ? copies.front().slice(at, n).data : before.data() + at * element;
    std::memcpy(block.data(), start, n * element);
    for (std::size_t c = before.empty() ? 1 : 0; c < copies.size(); ++c) {
      reduce_into(sum, copies[c].slice(at, n).span(), op);
    }
    for (const Buffer& copy : into) std::memcpy(copy.slice(at, n).data, block.data(), n * element);
  }
}

// This lane's chunk. Chunks consist of whole cache lines, so that two lanes never write to the same
// line.
struct Chunk {
  std::size_t first;
  std::size_t count;
};

Chunk chunk_of(const NodeMap& map, const Buffer& data) {
  if (map.place >= map.lanes) return {0, 0};
  const std::size_t line = 64 / size_of(data.type);
  const std::size_t lines = (data.count + line - 1) / line;
  const auto starts = even_chunks(lines, static_cast<int>(map.lanes));
  const std::size_t first = std::min(starts[map.place] * line, data.count);
  const std::size_t last = std::min(starts[map.place + 1] * line, data.count);
  return {first, last - first};
}

void reduce_between_nodes(Link& link, const NodeMap& map, const Copies& chunk, ReduceOp op,
                          bool in_order, Scratch& scratch, const CostModel& model) {
  const Buffer mine = chunk[map.place];
  const Subgroup lane = map.lane_subgroup();
  if (in_order) {
    const auto contribute = [&](std::size_t first, std::size_t count,
                                std::span<std::byte> incoming) {
      add_up(incoming, slice(chunk, first, count), {mine.slice(first, count)}, op);
    };
    const auto finished = [&](std::size_t first, std::size_t count) {
      for (const Buffer& copy : slice(chunk, first, count)) {
        const Buffer from = mine.slice(first, count);
        if (copy.data != from.data) std::memcpy(copy.data, from.data, from.bytes());
      }
    };
    return chain(link, lane, mine, scratch, contribute, finished);
  }
  add_up({}, chunk, {mine}, op);
  all_reduce(link, lane, mine, op, scratch, model);
  for (const Buffer& copy : chunk) {
    if (copy.data != mine.data) std::memcpy(copy.data, mine.data, mine.bytes());
  }
}

}  // namespace

void node_all_reduce(Link& link, NodeMemory& node, const SharedRegion& region, std::size_t offset,
                     Buffer data, ReduceOp op, bool in_order, Scratch& scratch,
                     const CostModel& model) {
  const NodeMap& map = node.map();
  const auto all_here = [&] {
    node.barrier().wait([&](std::size_t place) { link.check(-1, map.local()[place]); });
  };
  const auto [first, count] = chunk_of(map, data);
  Copies chunk;
  for (std::byte* copy : region.copies) {
    chunk.push_back(Buffer{copy + offset, data.count, data.type}.slice(first, count));
  }
  all_here();  // now every copy holds its rank's part
  if (count > 0) {
    if (map.nodes.size() == 1) {
      add_up({}, chunk, chunk, op);
    } else {
      reduce_between_nodes(link, map, chunk, op, in_order, scratch, model);
    }
  }
  all_here();  // now every chunk is finished in every copy
}

}  // namespace ddp::comm::schedules
