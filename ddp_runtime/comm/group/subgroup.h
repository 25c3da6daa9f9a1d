// SPDX-License-Identifier: Apache-2.0
// An ordered subset of a group's ranks that run one schedule together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace ddp::comm {

struct Subgroup {
  std::vector<int> ranks;  // ranks in the group
  int me = 0;              // this rank's place in `ranks`

  int size() const noexcept { return static_cast<int>(ranks.size()); }
  // The group rank of the member at `place`, which may wrap around once in either direction.
  int at(int place) const noexcept {
    return ranks[static_cast<std::size_t>((place % size() + size()) % size())];
  }

  static Subgroup all(int rank, int size) {
    Subgroup group{std::vector<int>(static_cast<std::size_t>(size)), rank};
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
    return group;
  }
};

}  // namespace ddp::comm
