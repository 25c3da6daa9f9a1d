// SPDX-License-Identifier: Apache-2.0
// Byte ranges of a file, and the gaps between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ddp::ckpt {

struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  std::uint64_t end() const noexcept { return offset + length; }
  bool operator==(const Extent&) const = default;
};

// Returns the ranges of [0, size) that no extent covers, in order. `sorted` is ordered by offset,
// without overlap, inside [0, size).
std::vector<Extent> gaps_between(std::span<const Extent> sorted, std::uint64_t size);

}  // namespace ddp::ckpt
