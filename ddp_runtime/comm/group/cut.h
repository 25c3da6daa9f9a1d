// SPDX-License-Identifier: Apache-2.0
// How the elements of a buffer are cut into one part per rank. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/buffer.h"

namespace ddp::comm {

// The parts are one behind the other, in rank order. All ranks give the same cut.
struct Cut {
  // Elements of each rank's part, which may be 0; empty: parts that differ by at most one element,
  // longer ones first.
  std::vector<std::size_t> sizes = {};
};

// Where each part begins, in elements, and one past the end: n + 1 entries for n ranks.
using Starts = std::vector<std::size_t>;

// Parts that differ by at most one element, longer ones first.
Starts even_starts(std::size_t count, int ranks);
// Throws std::invalid_argument if the sizes are not one per rank or do not add up to `count`.
Starts starts_of(const Cut& cut, std::size_t count, int ranks);

inline Buffer part_of(const Buffer& whole, const Starts& starts, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  return whole.slice(starts[r], starts[r + 1] - starts[r]);
}

// "1024 float32 in parts of 500, 0 and 524", or a checksum instead of many parts: the same on two
// ranks only if the cuts are.
std::string describe(const Buffer& whole, const Cut& cut);

}  // namespace ddp::comm
