// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/schedules/rounds.h"

#include "ddp_runtime/comm/group/host_reduce.h"

namespace ddp::comm::schedules {
namespace {

// `count` chunks starting at chunk `first` mod n, which may wrap around from the last chunk to
// chunk 0. A message that wraps around has two pieces, split at the same byte at its sender and its
// receiver.
SplitMessage chunks(Buffer data, const Starts& starts, int first, int count) {
  const int n = static_cast<int>(starts.size()) - 1;
  const auto piece = [&](int begin, int end) {
    const std::size_t from = starts[static_cast<std::size_t>(begin)];
    return data.slice(from, starts[static_cast<std::size_t>(end)] - from).span();
  };
  const int begin = (first % n + n) % n;
  if (begin + count <= n) return {piece(begin, begin + count), {}};
  return {piece(begin, n), piece(0, begin + count - n)};
}

}  // namespace

Rounds ring_rounds(int n) {
  Rounds rounds;
  for (int left = n; left > 1; --left) rounds.push_back({1, left - 1, 1});
  return rounds;
}

Rounds halving_rounds(int n) {
  Rounds rounds;
  for (int left = n; left > 1;) {
    const int lower = (left + 1) / 2;
    rounds.push_back({lower, lower, left - lower});
    left = lower;
  }
  return rounds;
}

void reduce_rounds(Link& link, const Subgroup& group, Buffer data, const Starts& starts,
                   const Rounds& rounds, ReduceOp op, Scratch& scratch) {
  for (const Round& round : rounds) {
    const SplitMessage outgoing = chunks(data, starts, group.me + round.first, round.count);
    // The sender's block `first` arrives here as block first - skip.
    const SplitMessage target =
        chunks(data, starts, group.me + round.first - round.skip, round.count);
    link.exchange(
        group.at(group.me + round.skip), outgoing, group.at(group.me - round.skip), target, scratch,
        [&](std::span<std::byte> mine, std::span<std::byte> piece) {
          reduce_into({mine.data(), mine.size() / size_of(data.type), data.type}, piece, op);
        });
  }
}

void gather_rounds(Link& link, const Subgroup& group, Buffer data, const Starts& starts,
                   const Rounds& rounds) {
  for (auto round = rounds.rbegin(); round != rounds.rend(); ++round) {
    const int last = group.me - round->first;  // last block to arrive, counted backward
    const SplitMessage incoming = chunks(data, starts, last - round->count + 1, round->count);
    const SplitMessage outgoing =
        chunks(data, starts, last - round->count + 1 + round->skip, round->count);
    link.exchange(group.at(group.me + round->skip), outgoing, group.at(group.me - round->skip),
                  incoming);
  }
}

}  // namespace ddp::comm::schedules
