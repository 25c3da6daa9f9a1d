// SPDX-License-Identifier: Apache-2.0
// Divides arrays into blocks, the units of writing, reading and checksums.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hdf5_ckpt/core/crc32c.h"

namespace ddp::ckpt {

// Block `block` of array `array`.
struct Block {
  std::size_t array = 0;
  std::size_t block = 0;
};

constexpr std::uint64_t block_count(std::uint64_t length, std::uint64_t block_bytes) {
  return length / block_bytes + (length % block_bytes != 0 ? 1 : 0);
}

// Returns all blocks of arrays of these lengths, array by array.
inline std::vector<Block> blocks_of(std::span<const std::uint64_t> lengths,
                                    std::uint64_t block_bytes) {
  std::vector<Block> blocks;
  for (std::size_t array = 0; array < lengths.size(); ++array)
    for (std::size_t block = 0; block < block_count(lengths[array], block_bytes); ++block)
      blocks.push_back({array, block});
  return blocks;
}

// Returns the bytes of an array that form block `block`.
template <typename Byte>
std::span<Byte> block_of(std::span<Byte> bytes, std::size_t block, std::uint64_t block_bytes) {
  const std::size_t start = block * block_bytes;
  return bytes.subspan(start, std::min<std::size_t>(block_bytes, bytes.size() - start));
}

// Returns the checksum of an array of `length` bytes, computed from those of its block_count()
// blocks.
inline std::uint32_t combine_blocks(std::span<const std::uint32_t> crcs, std::uint64_t length,
                                    std::uint64_t block_bytes) {
  std::uint32_t crc = 0;
  for (const std::uint32_t block_crc : crcs) {
    const std::uint64_t size = std::min(block_bytes, length);
    crc = crc32c_combine(crc, block_crc, size);
    length -= size;
  }
  return crc;
}

}  // namespace ddp::ckpt
