#include "ddp_runtime/comm/schedules/ring.h"

#include <algorithm>
#include <cstring>

#include "ddp_runtime/comm/host_reduce.h"

namespace ddp::comm::schedules {
namespace {

int modulo(int value, int n) {
  return ((value % n) + n) % n;
}

Buffer chunk(Buffer data, const std::vector<std::size_t>& starts, int index) {
  const auto i = static_cast<std::size_t>(index);
  return data.slice(starts[i], starts[i + 1] - starts[i]);
}

}  // namespace

std::vector<std::size_t> even_chunks(std::size_t count, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> starts(n + 1);
  for (std::size_t r = 0; r <= n; ++r) starts[r] = r * (count / n) + std::min(r, count % n);
  return starts;
}

void ring_reduce(Link& link, const Team& team, Buffer data, const std::vector<std::size_t>& starts,
                 ReduceOp op, Scratch& scratch) {
  const int n = team.size();
  const int me = team.me;
  const int right = team.at(me + 1);
  const int left = team.at(me - 1);
  for (int step = 0; step < n - 1; ++step) {
    const Buffer outgoing = chunk(data, starts, modulo(me - step - 1, n));
    const Buffer target = chunk(data, starts, modulo(me - step - 2, n));
    link.exchange(right, outgoing.span(), left, target.bytes(), scratch,
                  [&](std::size_t offset, std::span<std::byte> piece) {
                    const std::size_t element = size_of(data.type);
                    reduce_into(target.slice(offset / element, piece.size() / element), piece, op);
                  });
  }
}

void ring_gather(Link& link, const Team& team, Buffer data,
                 const std::vector<std::size_t>& starts) {
  const int n = team.size();
  const int me = team.me;
  for (int step = 0; step < n - 1; ++step) {
    const Buffer outgoing = chunk(data, starts, modulo(me - step, n));
    const Buffer incoming = chunk(data, starts, modulo(me - step - 1, n));
    link.exchange(team.at(me + 1), outgoing.span(), team.at(me - 1), incoming.span());
  }
}

void all_reduce_ring(Link& link, const Team& team, Buffer data, ReduceOp op, Scratch& scratch) {
  const auto starts = even_chunks(data.count, team.size());
  ring_reduce(link, team, data, starts, op, scratch);
  ring_gather(link, team, data, starts);
}

void reduce_scatter(Link& link, const Team& team, Buffer input, Buffer output, ReduceOp op,
                    Scratch& scratch) {
  const auto starts = even_chunks(input.count, team.size());
  ring_reduce(link, team, input, starts, op, scratch);
  const Buffer mine = chunk(input, starts, team.me);
  if (mine.bytes() > 0) std::memcpy(output.data, mine.data, mine.bytes());
}

void all_gather(Link& link, const Team& team, Buffer input, Buffer output) {
  const auto starts = even_chunks(output.count, team.size());
  const Buffer mine = chunk(output, starts, team.me);
  if (mine.bytes() > 0) std::memmove(mine.data, input.data, mine.bytes());
  ring_gather(link, team, output, starts);
}

}  // namespace ddp::comm::schedules
