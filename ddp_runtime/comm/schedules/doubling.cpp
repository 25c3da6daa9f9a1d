// SPDX-License-Identifier: Apache-2.0
// Recursive doubling: after step k every rank holds the reduction over its group of 2^(k+1) ranks.
// If n is not a power of two, the ranks beyond the largest power of two first send their data to a
// partner below it, and receive the result at the end.
#include <algorithm>
#include <bit>
#include <cstring>

#include "ddp_runtime/comm/group/host_reduce.h"
#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {

void all_reduce_doubling(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                         Scratch& scratch) {
  if (data.count == 0) return;  // its address may be null
  const int n = group.size();
  const int me = group.me;
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(n)));
  scratch.resize(std::max(scratch.size(), data.bytes()));
  const std::span<std::byte> incoming(scratch.data(), data.bytes());

  if (me >= power) {
    link.send(group.at(me - power), data.span());
    link.receive(group.at(me - power), data.span());
    return;
  }
  const bool has_extra = me + power < n;
  if (has_extra) {
    link.receive(group.at(me + power), incoming);
    reduce_into(data, incoming, op);
  }
  for (int distance = 1; distance < power; distance *= 2) {
    const int partner = me ^ distance;
    link.exchange(group.at(partner), data.span(), group.at(partner), incoming);
    // Both partners add in the same order, lower rank first, so that all ranks get bitwise equal
    // results even if the operation rounds.
    if (partner < me) {
      const Buffer theirs{incoming.data(), data.count, data.type};
      reduce_into(theirs, data.span(), op);
      std::memcpy(data.data, incoming.data(), data.bytes());
    } else {
      reduce_into(data, incoming, op);
    }
  }
  if (has_extra) link.send(group.at(me + power), data.span());
}

}  // namespace ddp::comm::schedules
