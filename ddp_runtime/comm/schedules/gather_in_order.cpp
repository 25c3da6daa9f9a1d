// SPDX-License-Identifier: Apache-2.0
// All-reduce in rank order for small data: every rank receives every other rank's part, in as few
// steps as possible, and adds all parts itself. The chain (schedules/chain.h) would take 2 (n - 1)
// steps for a single number.
#include <cstring>
#include <vector>

#include "ddp_runtime/comm/group/host_reduce.h"
#include "ddp_runtime/comm/schedules/rounds.h"
#include "ddp_runtime/comm/schedules/schedules.h"

namespace ddp::comm::schedules {

void all_reduce_gather_in_order(Link& link, const Subgroup& group, Buffer data, ReduceOp op,
                                Scratch& scratch) {
  const auto n = static_cast<std::size_t>(group.size());
  if (scratch.size() < n * data.bytes()) scratch.resize(n * data.bytes());
  const Buffer parts{scratch.data(), n * data.count, data.type};
  const auto part = [&](std::size_t place) { return parts.slice(place * data.count, data.count); };
  std::memcpy(part(static_cast<std::size_t>(group.me)).data, data.data, data.bytes());
  gather_rounds(link, group, parts, even_starts(parts.count, group.size()),
                halving_rounds(group.size()));
  std::memcpy(data.data, part(0).data, data.bytes());
  for (std::size_t place = 1; place < n; ++place) reduce_into(data, part(place).span(), op);
}

}  // namespace ddp::comm::schedules
