// SPDX-License-Identifier: Apache-2.0
// Reads arrays, or the requested parts of them, block by block. A block is the smallest unit with a
// checksum, so even for one requested byte the whole block is read and checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/core/parts.h"
#include "hdf5_ckpt/core/progress.h"
#include "hdf5_ckpt/io/source_file.h"

namespace ddp::ckpt {

// An array or part in a file, and the destination of its bytes: the bytes of `overlap` are copied
// to `target`. Without `overlap` all bytes are checked and discarded.
struct Wanted {
  const ArrayInfo* info = nullptr;
  std::optional<Overlap> overlap;
  std::span<std::byte> target;
};

// The blocks to read for the requests on one file, in file order.
class BlockList {
 public:
  BlockList(std::vector<Wanted> wanted, std::uint64_t block_bytes);

  struct Entry {
    std::size_t wanted = 0;
    std::uint64_t begin = 0;  // bytes from the start of the array or part
    std::uint64_t end = 0;
  };
  const std::vector<Entry>& entries() const noexcept { return entries_; }
  const Wanted& wanted(const Entry& entry) const { return wanted_[entry.wanted]; }
  std::uint64_t block_bytes() const noexcept { return block_bytes_; }
  std::uint64_t bytes() const noexcept { return bytes_; }  // of all blocks

 private:
  std::vector<Wanted> wanted_;
  std::vector<Entry> entries_;
  std::uint64_t block_bytes_ = 0;
  std::uint64_t bytes_ = 0;
};

// Throws DamagedError naming the array and the bytes that are unreadable or wrong.
void read_blocks(SourceFile& file, const BlockList& list, unsigned threads, Meter& meter);

}  // namespace ddp::ckpt
