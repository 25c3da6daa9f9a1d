// Some ranks of a group, in an order: those that run one schedule together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace ddp::comm {

struct Subgroup {
  std::vector<int> ranks;  // of the group
  int me = 0;              // this rank's place in `ranks`

  int size() const noexcept { return static_cast<int>(ranks.size()); }
  // The rank in the group of the member at `place`, which may be one round too large or small.
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
