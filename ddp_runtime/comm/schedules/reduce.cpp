// SPDX-License-Identifier: Apache-2.0
// All-reduce, reduce-scatter and all-gather by rounds, and the choice of the all-reduce schedule.
#include <cstring>

#include "ddp_runtime/comm/schedules/chain.h"
#include "ddp_runtime/comm/schedules/choice.h"
#include "ddp_runtime/comm/schedules/rounds.h"
#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {
namespace {

void all_reduce_by(const Rounds& rounds, Link& link, const Subgroup& group, Buffer data,
                   ReduceOp op, Scratch& scratch) {
  const auto starts = even_chunks(data.count, group.size());
  reduce_rounds(link, group, data, starts, rounds, op, scratch);
  gather_rounds(link, group, data, starts, rounds);
}

// The chunk at this rank's place in a buffer that holds one chunk per rank.
Buffer own_chunk(const Subgroup& group, Buffer all, std::size_t count) {
  return all.slice(static_cast<std::size_t>(group.me) * count, count);
}

}  // namespace

void all_reduce_ring(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                     Scratch& scratch) {
  all_reduce_by(ring_rounds(group.size()), link, group, data, op, scratch);
}

void all_reduce_halving(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                        Scratch& scratch) {
  all_reduce_by(halving_rounds(group.size()), link, group, data, op, scratch);
}

void all_reduce(Link& link, const Subgroup& group, Buffer data, ReduceOp op, Scratch& scratch,
                const CostModel& model) {
  if (group.size() == 1 || data.count == 0) return;
  switch (choose_all_reduce(group.size(), data.bytes(), model)) {
    case AllReduce::doubling:
      return all_reduce_doubling(link, group, data, op, scratch);
    case AllReduce::halving:
      return all_reduce_halving(link, group, data, op, scratch);
    case AllReduce::ring:
      return all_reduce_ring(link, group, data, op, scratch);
  }
}

void all_reduce_in_order(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                         Scratch& scratch, const CostModel& model) {
  if (group.size() == 1 || data.count == 0) return;
  switch (choose_in_order(group.size(), data.bytes(), model)) {
    case InOrder::chain:
      return all_reduce_chain(link, group, data, op, scratch);
    case InOrder::gather:
      return all_reduce_gather_in_order(link, group, data, op, scratch);
  }
}

void reduce_scatter(Link& link, const Subgroup& group, Buffer input, Buffer output, ReduceOp op,
                    Scratch& scratch, const CostModel& model) {
  const auto starts = even_chunks(input.count, group.size());
  reduce_rounds(link, group, input, starts, choose_rounds(group.size(), input.bytes(), model), op,
                scratch);
  const Buffer mine = own_chunk(group, input, output.count);
  if (mine.bytes() > 0) std::memcpy(output.data, mine.data, mine.bytes());
}

void all_gather(Link& link, const Subgroup& group, Buffer input, Buffer output,
                const CostModel& model) {
  const auto starts = even_chunks(output.count, group.size());
  const Buffer mine = own_chunk(group, output, input.count);
  if (mine.bytes() > 0) std::memmove(mine.data, input.data, mine.bytes());
  gather_rounds(link, group, output, starts, choose_rounds(group.size(), output.bytes(), model));
}

}  // namespace ddp::comm::schedules
