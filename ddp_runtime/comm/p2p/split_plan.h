// SPDX-License-Identifier: Apache-2.0
// Decides which ranks form a group when a group is split. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace ddp::comm {

// What one rank passed to Group::split().
struct SplitRequest {
  int color = 0;
  int key = 0;
  std::string name = {};
};

inline constexpr std::size_t kMaxGroupName = 48;  // bytes

// The ranks of the group of rank `rank`, in their new order; empty if it is in none.
// `requests[r]` is the request of rank r.
std::vector<int> members_of_part(std::span<const SplitRequest> requests, int rank);

// Throws UsageError if a name is too long.
void require_short_names(std::span<const SplitRequest> requests);

}  // namespace ddp::comm
