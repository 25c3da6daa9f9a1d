// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter and all-gather in place, for any cut of the data.
//
// The order in which an all-reduce adds the ranks' values depends on its schedule and on the chunk
// in which an element is. A reduce-scatter with bits of its own would make a sharded run differ
// from a run of the same program without shards. So the additions are always those that
// all_reduce() chooses for this size, whatever the cut. Where the parts are not its chunks, the
// finished chunks move to their owners, which costs at most as many bytes as the all-gather that is
// saved.
#include <algorithm>
#include <cstring>

#include "ddp_runtime/comm/group/host_reduce.h"
#include "ddp_runtime/comm/schedules/choice.h"
#include "ddp_runtime/comm/schedules/rounds.h"
#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {
namespace {

// Memory for the pieces of all ranks in reduce_to_parts_in_order.
constexpr std::size_t kPiecesBytes = std::size_t{4} << 20;

Buffer common(const Buffer& data, const Starts& a, std::size_t place_a, const Starts& b,
              std::size_t place_b) {
  const std::size_t first = std::max(a[place_a], b[place_b]);
  const std::size_t last = std::min(a[place_a + 1], b[place_b + 1]);
  return first < last ? data.slice(first, last - first) : data.slice(0, 0);
}

// Every rank has finished the chunk at its place, and gets its part.
void move_to_owners(Link& link, const Subgroup& group, Buffer data, const Starts& chunks,
                    const Starts& starts) {
  if (chunks == starts) return;
  const auto me = static_cast<std::size_t>(group.me);
  Parts parts;
  for (std::size_t place = 0; place + 1 < starts.size(); ++place) {
    parts.input.push_back(common(data, chunks, me, starts, place));
    parts.output.push_back(common(data, chunks, place, starts, me));
  }
  all_to_all(link, group, parts);
}

// Elements [first, first + count) of a part, as far as it reaches.
Buffer piece_of(const Buffer& part, std::size_t first, std::size_t count) {
  first = std::min(first, part.count);
  return part.slice(first, std::min(count, part.count - first));
}

}  // namespace

void reduce_to_parts(Link& link, const Subgroup& group, Buffer data, const Starts& starts,
                     ReduceOp op, Scratch& scratch, const CostModel& model) {
  if (group.size() < 2 || data.count == 0) return;
  const auto schedule = choose_all_reduce(group.size(), data.bytes(), model);
  if (schedule == AllReduce::doubling) {
    return all_reduce_doubling(link, group, data, op, scratch);
  }
  const Starts chunks = even_starts(data.count, group.size());
  const Rounds rounds =
      schedule == AllReduce::ring ? ring_rounds(group.size()) : halving_rounds(group.size());
  reduce_rounds(link, group, data, chunks, rounds, op, scratch);
  move_to_owners(link, group, data, chunks, starts);
}

// Each owner gets the other ranks' values of its part, and adds them itself.
void reduce_to_parts_in_order(Link& link, const Subgroup& group, Buffer data, const Starts& starts,
                              ReduceOp op, Scratch& scratch) {
  if (group.size() < 2 || data.count == 0) return;
  const auto n = static_cast<std::size_t>(group.size());
  std::size_t largest = 0;
  for (std::size_t place = 0; place < n; ++place) {
    largest = std::max(largest, starts[place + 1] - starts[place]);
  }
  const std::size_t of_each_element = std::max<std::size_t>(n * size_of(data.type), 1);
  const std::size_t at_once = std::max<std::size_t>(kPiecesBytes / of_each_element, 1);
  const Buffer mine = part_of(data, starts, group.me);
  for (std::size_t first = 0; first < largest; first += at_once) {
    const Buffer sum = piece_of(mine, first, at_once);
    if (scratch.size() < n * sum.bytes()) scratch.resize(n * sum.bytes());
    Parts pieces;
    for (std::size_t place = 0; place < n; ++place) {
      const Buffer part = part_of(data, starts, static_cast<int>(place));
      pieces.input.push_back(piece_of(part, first, at_once));
      pieces.output.push_back({scratch.data() + place * sum.bytes(), sum.count, sum.type});
    }
    all_to_all(link, group, pieces);
    if (sum.count == 0) continue;
    std::memcpy(sum.data, pieces.output.front().data, sum.bytes());
    for (std::size_t place = 1; place < n; ++place) {
      reduce_into(sum, pieces.output[place].span(), op);
    }
  }
}

void gather_parts(Link& link, const Subgroup& group, Buffer data, const Starts& starts,
                  const CostModel& model) {
  if (group.size() < 2 || data.count == 0) return;
  gather_rounds(link, group, data, starts, choose_rounds(group.size(), data.bytes(), model));
}

}  // namespace ddp::comm::schedules
