// SPDX-License-Identifier: Apache-2.0
// Broadcast by binomial tree (few steps), by chain (every rank sends the data once) or by scatter
// and all-gather (few steps, and no rank sends the data more than twice). Also the dissemination
// barrier.
#include <algorithm>
#include <array>

#include "ddp_runtime/comm/schedules/choice.h"
#include "ddp_runtime/comm/schedules/rounds.h"
#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {

// Ranks are renumbered so that the root is 0. In the round with distance d, ranks below d have the
// data, and rank r sends it to r + d. So rank r > 0 receives from r minus its highest bit.
void broadcast_tree(Link& link, const Subgroup& group, Buffer data, int root) {
  const int n = group.size();
  const int me = (group.me - root + n) % n;
  const auto actual = [&](int relative) { return group.at(relative + root); };
  int distance = 1;
  if (me != 0) {
    while (distance * 2 <= me) distance *= 2;
    link.receive(actual(me - distance), data.span());
    distance *= 2;
  }
  for (; distance < n; distance *= 2) {
    if (me < distance && me + distance < n) link.send(actual(me + distance), data.span());
  }
}

void broadcast_chain(Link& link, const Subgroup& group, Buffer data, int root) {
  const int n = group.size();
  const int me = (group.me - root + n) % n;
  const int before = group.at(group.me - 1);
  const int after = group.at(group.me + 1);
  if (me == 0) return link.send(after, data.span());
  if (me == n - 1) return link.receive(before, data.span());
  link.relay(before, after, data.span());
}

// Chunk p belongs to the p-th rank, counted from the root. A rank that holds the chunks of several
// ranks, its own first, sends the upper half of them to the first rank of that half.
void broadcast_scatter(Link& link, const Subgroup& group, Buffer data, int root) {
  const int n = group.size();
  Subgroup from_root{group.ranks, (group.me - root + n) % n};
  std::rotate(from_root.ranks.begin(), from_root.ranks.begin() + root, from_root.ranks.end());
  const int me = from_root.me;
  const auto starts = even_starts(data.count, n);
  const auto chunks = [&](int first, int last) {
    const std::size_t begin = starts[static_cast<std::size_t>(first)];
    return data.slice(begin, starts[static_cast<std::size_t>(last)] - begin).span();
  };
  for (int first = 0, last = n; last - first > 1;) {
    const int middle = first + (last - first + 1) / 2;
    if (me == first) link.send(from_root.at(middle), chunks(middle, last));
    if (me == middle) link.receive(from_root.at(first), chunks(middle, last));
    (me < middle ? last : first) = middle;
  }
  gather_rounds(link, from_root, data, starts, halving_rounds(n));
}

void broadcast(Link& link, const Subgroup& group, Buffer data, int root, const CostModel& model) {
  if (group.size() == 1 || data.count == 0) return;
  switch (choose_broadcast(group.size(), data.bytes(), model)) {
    case Broadcast::tree:
      return broadcast_tree(link, group, data, root);
    case Broadcast::chain:
      return broadcast_chain(link, group, data, root);
    case Broadcast::scatter:
      return broadcast_scatter(link, group, data, root);
  }
}

// In round k, every rank signals the rank 2^k ahead and waits for the rank 2^k behind. After log2 n
// rounds, every rank has heard, directly or indirectly, from every other rank.
void barrier(Link& link, const Subgroup& group) {
  const int n = group.size();
  const int me = group.me;
  std::array<std::byte, 1> out{};
  std::array<std::byte, 1> in{};
  for (int distance = 1; distance < n; distance *= 2) {
    link.exchange(group.at(me + distance), out, group.at(me - distance), in);
  }
}

}  // namespace ddp::comm::schedules
