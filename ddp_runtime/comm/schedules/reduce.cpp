// SPDX-License-Identifier: Apache-2.0
// All-reduce by rounds, and the choice of its schedule.
#include "ddp_runtime/comm/schedules/chain.h"
#include "ddp_runtime/comm/schedules/choice.h"
#include "ddp_runtime/comm/schedules/rounds.h"
#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {
namespace {

void all_reduce_by(const Rounds& rounds, Link& link, const Subgroup& group, Buffer data,
                   ReduceOp op, Scratch& scratch) {
  const auto starts = even_starts(data.count, group.size());
  reduce_rounds(link, group, data, starts, rounds, op, scratch);
  gather_rounds(link, group, data, starts, rounds);
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

}  // namespace ddp::comm::schedules
