// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/plan/shard_plan.h"

#include <algorithm>
#include <numeric>
#include <optional>

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

std::int64_t multiple_from(std::int64_t least, std::int64_t unit) {
  return (least + unit - 1) / unit * unit;
}

// Where an array can begin, at or after the aligned element `from`, so that the next boundary of
// equal shards is not within a row of it: at that boundary at the latest.
std::int64_t place_from(std::int64_t from, const ArraySize& array, std::int64_t shard) {
  const std::int64_t boundary = (from / shard + 1) * shard;
  if (from + array.elements() <= boundary) return from;
  std::int64_t place = from + (boundary - from) % array.row_elements;
  while (place % kShardAlignment != 0) place += array.row_elements;
  return place;
}

// Where all arrays begin, and the end of the last one.
std::int64_t place_in_equal_shards(ShardPlan::Flat& flat, std::span<const ArraySize> arrays,
                                   std::int64_t shard) {
  std::int64_t end = 0;
  for (std::size_t i = 0; i < flat.arrays.size(); ++i) {
    const ArraySize& array = arrays[flat.arrays[i]];
    const bool is_empty = array.elements() == 0;
    flat.offsets[i] = is_empty ? end : place_from(aligned(end), array, shard);
    end = flat.offsets[i] + array.elements();
  }
  return end;
}

// Of a multiple of this many elements, so that arrays longer than a shard are cut between rows.
std::int64_t unit_of_shards(const ShardPlan::Flat& flat, std::span<const ArraySize> arrays,
                            std::int64_t shard, std::int64_t most) {
  std::int64_t unit = kShardAlignment;
  for (const std::size_t index : flat.arrays) {
    if (arrays[index].elements() <= shard) continue;
    unit = std::lcm(unit, arrays[index].row_elements);
    if (unit > most) break;
  }
  return unit;
}

// Nullopt if the gaps would be too large. See Note [Equal shards].
std::optional<ShardPlan::Flat> in_equal_shards(ShardPlan::Flat flat,
                                               std::span<const ArraySize> arrays, int ranks) {
  const std::int64_t most = flat.elements + flat.elements / 16;
  std::int64_t shard = multiple_from((flat.elements + ranks - 1) / ranks, kShardAlignment);
  while (shard > 0) {
    const std::int64_t unit = unit_of_shards(flat, arrays, shard, most);
    shard = multiple_from(shard, unit);
    if (shard > most / ranks) return std::nullopt;
    const std::int64_t missing = place_in_equal_shards(flat, arrays, shard) - shard * ranks;
    if (missing <= 0) break;
    shard += multiple_from((missing + ranks - 1) / ranks, unit);
  }
  flat.elements = shard * ranks;
  for (std::int64_t rank = 0; rank <= ranks; ++rank) flat.starts.push_back(rank * shard);
  return flat;
}

}  // namespace

ShardPlan plan_shards(std::span<const ArraySize> arrays, int ranks, ShardSizes sizes) {
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
    if (sizes == ShardSizes::equal) {
      if (auto equal = in_equal_shards(flat, arrays, ranks)) {
        flat = *std::move(equal);
        continue;
      }
    }
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
