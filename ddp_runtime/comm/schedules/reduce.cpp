// All-reduce, reduce-scatter and all-gather by rounds, and which schedule an all-reduce takes.
#include <cstring>

#include "ddp_runtime/comm/schedules/chain.h"
#include "ddp_runtime/comm/schedules/choice.h"
#include "ddp_runtime/comm/schedules/rounds.h"
#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {
namespace {

void all_reduce_by(const Rounds& rounds, Link& link, const Team& team, Buffer data, ReduceOp op,
                   Scratch& scratch) {
  const auto starts = even_chunks(data.count, team.size());
  reduce_rounds(link, team, data, starts, rounds, op, scratch);
  gather_rounds(link, team, data, starts, rounds);
}

// The chunk at this rank's place of a buffer that holds one for each rank.
Buffer own_chunk(const Team& team, Buffer all, std::size_t count) {
  return all.slice(static_cast<std::size_t>(team.me) * count, count);
}

}  // namespace

void all_reduce_ring(Link& link, const Team& team, Buffer data, ReduceOp op, Scratch& scratch) {
  all_reduce_by(ring_rounds(team.size()), link, team, data, op, scratch);
}

void all_reduce_halving(Link& link, const Team& team, Buffer data, ReduceOp op, Scratch& scratch) {
  all_reduce_by(halving_rounds(team.size()), link, team, data, op, scratch);
}

void all_reduce(Link& link, const Team& team, Buffer data, ReduceOp op, Scratch& scratch,
                const CostModel& model) {
  if (team.size() == 1 || data.count == 0) return;
  switch (choose_all_reduce(team.size(), data.bytes(), model)) {
    case AllReduce::doubling:
      return all_reduce_doubling(link, team, data, op, scratch);
    case AllReduce::halving:
      return all_reduce_halving(link, team, data, op, scratch);
    case AllReduce::ring:
      return all_reduce_ring(link, team, data, op, scratch);
  }
}

void all_reduce_in_order(Link& link, const Team& team, Buffer data, ReduceOp op, Scratch& scratch,
                         const CostModel& model) {
  if (team.size() == 1 || data.count == 0) return;
  switch (choose_in_order(team.size(), data.bytes(), model)) {
    case InOrder::chain:
      return all_reduce_chain(link, team, data, op, scratch);
    case InOrder::gather:
      return all_reduce_gather_in_order(link, team, data, op, scratch);
  }
}

void reduce_scatter(Link& link, const Team& team, Buffer input, Buffer output, ReduceOp op,
                    Scratch& scratch, const CostModel& model) {
  const auto starts = even_chunks(input.count, team.size());
  reduce_rounds(link, team, input, starts, choose_rounds(team.size(), input.bytes(), model), op,
                scratch);
  const Buffer mine = own_chunk(team, input, output.count);
  if (mine.bytes() > 0) std::memcpy(output.data, mine.data, mine.bytes());
}

void all_gather(Link& link, const Team& team, Buffer input, Buffer output, const CostModel& model) {
  const auto starts = even_chunks(output.count, team.size());
  const Buffer mine = own_chunk(team, output, input.count);
  if (mine.bytes() > 0) std::memmove(mine.data, input.data, mine.bytes());
  gather_rounds(link, team, output, starts, choose_rounds(team.size(), output.bytes(), model));
}

}  // namespace ddp::comm::schedules
