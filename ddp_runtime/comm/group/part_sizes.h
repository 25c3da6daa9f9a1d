// SPDX-License-Identifier: Apache-2.0
// The sizes of the parts of an all_to_all.
#pragma once

#include <cstddef>
#include <vector>

namespace ddp::comm {

// Elements for each rank, and from each rank. Both are empty if all parts have the same size. What
// rank a sends to rank b must be what b expects from a.
struct PartSizes {
  std::vector<std::size_t> input = {};
  std::vector<std::size_t> output = {};

  bool equal() const noexcept { return input.empty() && output.empty(); }
};

}  // namespace ddp::comm
