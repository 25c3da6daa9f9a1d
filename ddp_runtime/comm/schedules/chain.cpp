// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/schedules/chain.h"

#include <cstring>

#include "ddp_runtime/comm/group/host_reduce.h"

namespace ddp::comm::schedules {

void chain(Link& link, const Subgroup& group, Buffer data, Scratch& scratch,
           const Contribute& contribute, const Finished& finished) {
  const bool first = group.me == 0;
  const bool last = group.me == group.size() - 1;
  const std::size_t element = size_of(data.type);
  const auto combine = [&](std::size_t offset, std::size_t length, std::span<std::byte> incoming) {
    contribute(offset / element, length / element, incoming);
  };
  const auto done = [&](std::size_t offset, std::size_t length) {
    finished(offset / element, length / element);
  };
  link.chain(first ? -1 : group.at(group.me - 1), last ? -1 : group.at(group.me + 1), data.span(),
             scratch, combine, done);
}

void all_reduce_chain(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                      Scratch& scratch) {
  chain(
      link, group, data, scratch,
      [&](std::size_t first, std::size_t count, std::span<std::byte> incoming) {
        if (incoming.empty()) return;
        // Adds in rank order: the partial sum, then this rank's part.
        const Buffer mine = data.slice(first, count);
        const Buffer sum{incoming.data(), count, data.type};
        reduce_into(sum, mine.span(), op);
        std::memcpy(mine.data, sum.data, mine.bytes());
      },
      [](std::size_t, std::size_t) {});
}

}  // namespace ddp::comm::schedules
