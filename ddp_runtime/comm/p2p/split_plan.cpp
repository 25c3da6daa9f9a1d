// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/p2p/split_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/errors.h"
#include "base/text.h"

namespace ddp::comm {

std::vector<int> members_of_part(std::span<const SplitRequest> requests, int rank) {
  const auto request = [&](int r) -> const SplitRequest& {
    return requests[static_cast<std::size_t>(r)];
  };
  std::vector<int> members;
  if (request(rank).color < 0) return members;
  for (int r = 0; r < static_cast<int>(requests.size()); ++r) {
    if (request(r).color == request(rank).color) members.push_back(r);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return request(a).key < request(b).key; });
  return members;
}

void require_short_names(std::span<const SplitRequest> requests) {
  for (std::size_t rank = 0; rank < requests.size(); ++rank) {
    const std::string& name = requests[rank].name;
    if (name.size() <= kMaxGroupName) continue;
    throw UsageError(
        fmt::format("the name '{}...' of a group, from its rank {}, has {} bytes; use at most {}",
                    beginning_of(name, kMaxGroupName), rank, name.size(), kMaxGroupName));
  }
}

}  // namespace ddp::comm
