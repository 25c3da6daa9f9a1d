// SPDX-License-Identifier: Apache-2.0
// All-to-all by pairwise exchange: in round k, rank r sends to the rank k ahead and receives from
// the rank k behind, so that each link carries one part at a time in each direction. Each part is
// sent once, which is the least possible; small parts would need fewer messages if ranks passed on
// each other's parts, but more bytes.
#include <cstring>

#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {

void all_to_all(Link& link, const Subgroup& group, const Parts& parts) {
  const auto part = [](const std::vector<Buffer>& all, int place) {
    return all[static_cast<std::size_t>(place)];
  };
  const Buffer own = part(parts.input, group.me);
  std::byte* const target = part(parts.output, group.me).data;
  if (own.bytes() > 0 && target != own.data) std::memcpy(target, own.data, own.bytes());
  const int n = group.size();
  for (int distance = 1; distance < n; ++distance) {
    const int next = (group.me + distance) % n;
    const int previous = (group.me + n - distance) % n;
    link.exchange(group.at(next), part(parts.input, next).span(), group.at(previous),
                  part(parts.output, previous).span());
  }
}

}  // namespace ddp::comm::schedules
