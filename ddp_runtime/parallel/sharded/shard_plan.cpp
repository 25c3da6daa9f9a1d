// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/shard_plan.h"

#include <algorithm>

namespace ddp {
namespace {

std::int64_t aligned(std::int64_t elements) {
  return (elements + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
}

// The boundary between two rows that is nearest to element `wanted` of the flat memory.
std::int64_t nearest_boundary(const ShardPlan::Flat& flat, std::span<const ArraySize> arrays,
                              std::int64_t wanted) {
  const auto after = std::upper_bound(flat.offsets.begin(), flat.offsets.end(), wanted);
  const auto place = static_cast<std::size_t>(after - flat.offsets.begin()) - 1;
  const ArraySize& array = arrays[flat.arrays[place]];
  const std::int64_t into = std::min(wanted - flat.offsets[place], array.elements());
  const std::int64_t row = std::max<std::int64_t>(array.row_elements, 1);
  return flat.offsets[place] + (into + row / 2) / row * row;
}

}  // namespace

ShardPlan plan_shards(std::span<const ArraySize> arrays, int ranks) {
  ShardPlan plan;
  std::vector<int> keys;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto found = std::ranges::find(keys, arrays[i].key);
    const auto place = static_cast<std::size_t>(found - keys.begin());
    if (found == keys.end()) {
      keys.push_back(arrays[i].key);
      plan.flats.emplace_back();
    }
    auto& flat = plan.flats[place];
    flat.arrays.push_back(i);
    const bool is_empty = arrays[i].elements() == 0;
    flat.offsets.push_back(is_empty ? flat.elements : aligned(flat.elements));
    flat.elements = flat.offsets.back() + arrays[i].elements();
  }
  for (auto& flat : plan.flats) {
    flat.starts.push_back(0);
    for (std::int64_t rank = 1; rank < ranks; ++rank) {
      flat.starts.push_back(nearest_boundary(flat, arrays, flat.elements * rank / ranks));
    }
    flat.starts.push_back(flat.elements);
  }
  return plan;
}

std::vector<std::size_t> sizes_by_rank(const ShardPlan& plan, std::span<const ArraySize> arrays,
                                       std::size_t array) {
  std::vector<std::size_t> sizes;
  for (const auto& flat : plan.flats) {
    const auto found = std::ranges::find(flat.arrays, array);
    if (found == flat.arrays.end()) continue;
    const auto offset = flat.offsets[static_cast<std::size_t>(found - flat.arrays.begin())];
    for (std::size_t r = 0; r + 1 < flat.starts.size(); ++r) {
      const auto begin = std::max(flat.starts[r], offset);
      const auto end = std::min(flat.starts[r + 1], offset + arrays[array].elements());
      sizes.push_back(static_cast<std::size_t>(std::max<std::int64_t>(end - begin, 0)));
    }
  }
  return sizes;
}

std::vector<RowRange> rows_of(const ShardPlan& plan, std::span<const ArraySize> arrays, int rank) {
  const auto r = static_cast<std::size_t>(rank);
  std::vector<RowRange> ranges;
  for (const auto& flat : plan.flats) {
    for (std::size_t i = 0; i < flat.arrays.size(); ++i) {
      const ArraySize& array = arrays[flat.arrays[i]];
      const std::int64_t begin = std::max(flat.starts[r], flat.offsets[i]);
      const std::int64_t end = std::min(flat.starts[r + 1], flat.offsets[i] + array.elements());
      if (begin >= end) continue;
      ranges.push_back({flat.arrays[i], (begin - flat.offsets[i]) / array.row_elements,
                        (end - begin) / array.row_elements});
    }
  }
  return ranges;
}

}  // namespace ddp
