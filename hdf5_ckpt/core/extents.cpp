// SPDX-License-Identifier: Apache-2.0
// Finds the gaps in one pass over sorted ranges.

#include "hdf5_ckpt/core/extents.h"

namespace ddp::ckpt {

std::vector<Extent> gaps_between(std::span<const Extent> sorted, std::uint64_t size) {
  std::vector<Extent> gaps;
  std::uint64_t at = 0;
  for (const Extent& extent : sorted) {
    if (extent.offset > at) gaps.push_back({at, extent.offset - at});
    at = extent.end();
  }
  if (size > at) gaps.push_back({at, size - at});
  return gaps;
}

}  // namespace ddp::ckpt
