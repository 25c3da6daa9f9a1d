// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/kernels/tiles.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace ddp::kernels {
namespace {

struct Piece {
  std::uint64_t count = 0;
  std::uint64_t first_tile = 0;
};

std::vector<Piece> pieces_of(const std::vector<std::uint64_t>& counts) {
  std::vector<Piece> pieces;
  for (const auto count : counts) pieces.push_back({count});
  return pieces;
}

// The piece of a tile, found the slow way.
std::uint64_t slow_piece_of(const std::vector<Piece>& pieces, std::uint64_t tile) {
  for (std::uint64_t i = 0; i < pieces.size(); ++i) {
    if (tile < tiles_of(pieces[i].count)) return i;
    tile -= tiles_of(pieces[i].count);
  }
  return pieces.size();
}

void expect_every_element_once(std::vector<Piece> pieces, std::uint64_t blocks) {
  const std::uint64_t tiles = number_tiles(std::span(pieces));
  std::vector<std::uint64_t> covered(pieces.size());
  std::vector<std::uint64_t> next(pieces.size());
  std::uint64_t visits = 0;
  // One block takes all tiles in ascending order, so each piece must be covered without gaps.
  for_each_tile(pieces.data(), pieces.size(), tiles, Lane{0, 1, 0},
                [&](const Piece& piece, const TileRange& range) {
                  const auto index = static_cast<std::size_t>(&piece - pieces.data());
                  EXPECT_EQ(range.first, next[index]);
                  EXPECT_GT(range.count, 0U);
                  next[index] += range.count;
                });
  for (std::uint64_t block = 0; block < blocks; ++block) {
    for_each_tile(pieces.data(), pieces.size(), tiles, Lane{block, blocks, 0},
                  [&](const Piece& piece, const TileRange& range) {
                    covered[static_cast<std::size_t>(&piece - pieces.data())] += range.count;
                    ++visits;
                  });
  }
  EXPECT_EQ(visits, tiles);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    EXPECT_EQ(next[i], pieces[i].count) << "piece " << i;
    EXPECT_EQ(covered[i], pieces[i].count) << "piece " << i;
  }
}

TEST(Tiles, CountsThem) {
  EXPECT_EQ(tiles_of(0), 0U);
  EXPECT_EQ(tiles_of(1), 1U);
  EXPECT_EQ(tiles_of(kTileElements), 1U);
  EXPECT_EQ(tiles_of(kTileElements + 1), 2U);
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(tiles_of(kMost), kMost / kTileElements + 1);
}

TEST(Tiles, CoverEveryElementOnce) {
  const std::vector<std::vector<std::uint64_t>> cases = {
      {},
      {0},
      {1},
      {0, 0, 5, 0, 0},
      {kTileElements},
      {kTileElements + 1, 0, 0, 3, kTileElements - 1, 0},
      {3 * kTileElements, 0, 2 * kTileElements, 1},
  };
  for (const auto& counts : cases) {
    for (const std::uint64_t blocks : {1, 2, 3, 7, 100}) {
      expect_every_element_once(pieces_of(counts), blocks);
    }
  }
}

TEST(Tiles, CoverManyPieces) {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> counts(4096);
  for (auto& count : counts) count = random() % 5 == 0 ? 0 : random() % (4 * kTileElements);
  expect_every_element_once(pieces_of(counts), 396);
}

TEST(Tiles, FindPiecesOfMoreThanFourBillionElements) {
  constexpr std::uint64_t kGiga = std::uint64_t{1} << 30;
  auto pieces = pieces_of({5 * kGiga + 3, 0, 7 * kGiga, 1, 3 * kGiga + kTileElements - 1, 0});
  const std::uint64_t tiles = number_tiles(std::span(pieces));
  EXPECT_GT(15 * kGiga, std::uint64_t{std::numeric_limits<std::uint32_t>::max()});
  for (const std::uint64_t tile :
       {std::uint64_t{0}, 5 * kGiga / kTileElements, 5 * kGiga / kTileElements + 1,
        12 * kGiga / kTileElements, 12 * kGiga / kTileElements + 1, tiles - 2, tiles - 1}) {
    EXPECT_EQ(piece_of(pieces.data(), pieces.size(), 0, tile), slow_piece_of(pieces, tile));
  }
  const TileRange last = range_of_tile(pieces[0].count, pieces[2].first_tile - 1);
  EXPECT_EQ(last.first, 5 * kGiga);
  EXPECT_EQ(last.count, 3U);
}

TEST(Tiles, PieceSearchBeginsWhereItIsTold) {
  auto pieces = pieces_of({1, 2, kTileElements * 3, 0, 4});
  const std::uint64_t tiles = number_tiles(std::span(pieces));
  for (std::uint64_t tile = 0; tile < tiles; ++tile) {
    const auto expected = slow_piece_of(pieces, tile);
    for (std::uint64_t lowest = 0; lowest <= expected; ++lowest) {
      EXPECT_EQ(piece_of(pieces.data(), pieces.size(), lowest, tile), expected);
    }
  }
}

// Whether groups begin where `address` is aligned to a group.
TEST(Split, BeginsGroupsAtAlignedAddresses) {
  constexpr std::uint64_t kBase = std::uint64_t{1} << 40;
  for (const std::uint64_t size : {2, 4}) {
    for (const std::uint64_t group : {4, 8}) {
      for (std::uint64_t offset = 0; offset < 2 * group; ++offset) {
        const std::uint64_t address = kBase + offset * size;
        const std::uint64_t head = elements_to_group(address, size, group);
        EXPECT_LT(head, group);
        EXPECT_EQ((address + head * size) % (group * size), 0U);
      }
    }
  }
}

TEST(Split, CoversAllElements) {
  for (const std::uint64_t count : {0, 1, 3, 4, 5, 8, 31, 8192}) {
    for (std::uint64_t head = 0; head < 4; ++head) {
      const Split split = split_range(count, 4, head);
      const std::uint64_t end = split.head + 4 * split.groups;
      EXPECT_LE(end, count);
      EXPECT_TRUE(split.groups == 0 ? split.head == count : count - end < 4)
          << count << " " << head;
    }
  }
}

TEST(Split, TakesSingleElementsIfGroupsBeginElsewhere) {
  EXPECT_EQ(split_range(100, 4, 1, 1, 1).groups, 24U);
  EXPECT_EQ(split_range(100, 4, 1, 1, 2).groups, 0U);
  EXPECT_EQ(split_range(100, 4, 1, 1, 2).head, 100U);
  EXPECT_EQ(split_range(100, 4, 1, 0).groups, 0U);
}

TEST(Split, HoldsMoreThanFourBillionElements) {
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 33) + 7;
  const Split split = split_range(kCount, 8, 3);
  EXPECT_EQ(split.head, 3U);
  EXPECT_EQ(split.groups, (kCount - 3) / 8);
}

}  // namespace
}  // namespace ddp::kernels
