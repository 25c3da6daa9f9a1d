// SPDX-License-Identifier: Apache-2.0
// Decides which rows of which arrays each rank has. No side effects: sizes in, ranges out, the same
// on all ranks.
//
// Note [Shards of rows]
// Arrays are one behind the other in flat memory, which is cut into one shard per rank. Shards are
// about equal, so the largest array is divided, too, but they begin and end between two rows of an
// array: then a rank's part of an array is a range of its first dimension, which has a name, a
// shape and a place in a checkpoint. A shard has at most one row more than an equal one at each
// end.
//
// Note [Equal shards]
// NCCL gathers and scatters parts of one size only. So on GPUs, arrays are moved back by gaps of
// less than a few rows, until each boundary between equal shards is one between two rows. An array
// that is longer than a shard has several boundaries: its rows must divide the size of a shard. If
// that takes more than a sixteenth of the memory, shards are only about equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddp {

struct ArraySize {
  std::int64_t rows = 0;
  std::int64_t row_elements = 1;
  // Arrays with different keys (element type, device) do not share memory.
  int key = 0;

  std::int64_t elements() const noexcept { return rows * row_elements; }
};

struct RowRange {
  std::size_t array = 0;
  std::int64_t first = 0;  // row
  std::int64_t count = 0;  // rows, at least one

  friend bool operator==(const RowRange&, const RowRange&) = default;
};

struct ShardPlan {
  struct Flat {
    std::vector<std::size_t> arrays;        // in memory order
    std::vector<std::int64_t> offsets;      // elements, of each of `arrays`
    std::int64_t elements = 0;              // of all, with the gaps between them
    std::vector<std::int64_t> starts = {};  // of the shards, and the end: n + 1 entries for n ranks
  };
  std::vector<Flat> flats;  // one for each key, in order of its first array
};

// Arrays begin at multiples of this many elements, so that they are aligned for vector units.
inline constexpr std::int64_t kShardAlignment = 16;

enum class ShardSizes : std::uint8_t {
  close,  // as few gaps as alignment needs
  equal,  // see Note [Equal shards]
};

// Keeps the order of the arrays.
ShardPlan plan_shards(std::span<const ArraySize> arrays, int ranks,
                      ShardSizes sizes = ShardSizes::close);

// The rows of a rank, in memory order. Each row of each array belongs to one rank.
std::vector<RowRange> rows_of(const ShardPlan& plan, std::span<const ArraySize> arrays, int rank);

// How many elements of an array each rank has.
std::vector<std::size_t> sizes_by_rank(const ShardPlan& plan, std::span<const ArraySize> arrays,
                                       std::size_t array);

}  // namespace ddp
