// SPDX-License-Identifier: Apache-2.0
// How the elements of many arrays are shared among the blocks and threads of one launch. All
// numbers of elements are 64-bit: a bucket may have more than 2^31.
//
// Note [Tiles]
// The pieces of a bucket differ in size by a factor of a million, so one block for each piece would
// leave most of a GPU idle. Each piece is cut into tiles of kTileElements, tiles are numbered
// through all pieces, and each block takes every n-th tile, where n is the number of blocks. A
// block finds the piece of a tile by a binary search in the pieces' first tiles. Its tiles come in
// ascending order, so the search begins at the piece of its last tile.
#pragma once

#include <cstdint>
#include <span>

#include "ddp_runtime/kernels/host_device.h"

namespace ddp::kernels {

// A multiple of every group of elements that is accessed at once, so that all tiles of a piece are
// aligned alike.
inline constexpr std::uint64_t kTileElements = 8192;

constexpr std::uint64_t tiles_of(std::uint64_t elements) {
  return elements / kTileElements + (elements % kTileElements != 0 ? 1 : 0);
}

// Sets `first_tile` of each piece from the pieces' `count`. Returns the number of tiles.
template <class Piece>
std::uint64_t number_tiles(std::span<Piece> pieces) {
  std::uint64_t tiles = 0;
  for (Piece& piece : pieces) {
    piece.first_tile = tiles;
    tiles += tiles_of(piece.count);
  }
  return tiles;
}

// Returns the index of the piece that contains `tile`, which is not before piece `lowest`. An empty
// piece has the first tile of the next one, so the last of several candidates is the right one.
template <class Piece>
constexpr std::uint64_t piece_of(const Piece* pieces, std::uint64_t count, std::uint64_t lowest,
                                 std::uint64_t tile) {
  std::uint64_t low = lowest;
  std::uint64_t high = count;
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (pieces[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

struct TileRange {
  std::uint64_t first = 0;  // element of the piece
  std::uint64_t count = 0;
};

// The elements of the tile with the number `tile` within a piece of `elements`.
constexpr TileRange range_of_tile(std::uint64_t elements, std::uint64_t tile) {
  const std::uint64_t first = tile * kTileElements;
  const std::uint64_t left = elements - first;
  return {first, left < kTileElements ? left : kTileElements};
}

// Calls visit(piece, range) for each tile of the lane's block.
template <class Piece, class Visit>
SLURM_DDP_HOST_DEVICE void for_each_tile(const Piece* pieces, std::uint64_t count,
                                         std::uint64_t tiles, const Lane& lane,
                                         const Visit& visit) {
  std::uint64_t index = 0;
  for (std::uint64_t tile = lane.block; tile < tiles; tile += lane.blocks) {
    index = piece_of(pieces, count, index, tile);
    const Piece& piece = pieces[index];
    visit(piece, range_of_tile(piece.count, tile - piece.first_tile));
  }
}

// A range of elements as single elements, groups that are accessed at once, and single elements.
struct Split {
  std::uint64_t head = 0;    // single elements before the groups
  std::uint64_t groups = 0;  // of kGroup elements
};

// Single elements before the first group of an array whose elements of `size` bytes begin at
// `address`.
constexpr std::uint64_t elements_to_group(std::uint64_t address, std::uint64_t size,
                                          std::uint64_t group) {
  return (group - address / size % group) % group;
}

// Splits a range of `count` elements of arrays that each have `heads` elements before their first
// group. If the arrays' groups do not begin at the same element, there are no groups.
template <class... Heads>
constexpr Split split_range(std::uint64_t count, std::uint64_t group, std::uint64_t head,
                            const Heads... heads) {
  if (((head != static_cast<std::uint64_t>(heads)) || ...) || count < head + group)
    return {count, 0};
  return {head, (count - head) / group};
}

}  // namespace ddp::kernels
