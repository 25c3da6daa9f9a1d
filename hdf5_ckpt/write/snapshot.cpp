// SPDX-License-Identifier: Apache-2.0
// Allocates memory as one mapping, which keeps its pages between saves and does not fragment the
// allocator's memory.

#include "hdf5_ckpt/write/snapshot.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>

#include "hdf5_ckpt/core/blocks.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/io/aligned_buffer.h"
#include "hdf5_ckpt/io/parallel_for.h"
#include "hdf5_ckpt/io/streaming_copy.h"

namespace ddp::ckpt {
namespace {

constexpr std::uint64_t kCopyBlockBytes = 4ULL << 20;

constexpr std::uint64_t rounded_up(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Snapshot::~Snapshot() {
  release();
}

void Snapshot::release() noexcept {
  if (memory_ != nullptr) ::munmap(memory_, capacity_);
  memory_ = nullptr;
  capacity_ = 0;
}

std::uint64_t Snapshot::bytes_for(std::span<const ArrayView> arrays) noexcept {
  std::uint64_t bytes = 0;
  for (const ArrayView& array : arrays) bytes += rounded_up(array.bytes.size());
  return bytes;
}

void Snapshot::reserve(std::uint64_t bytes) {
  if (bytes <= capacity_) return;
  release();
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error(
        fmt::format("a copy of the state takes {} bytes of memory, more than is available; save "
                    "without copying",
                    bytes));
  memory_ = static_cast<std::byte*>(memory);
  capacity_ = bytes;
}

void Snapshot::take(std::span<const ArrayView> arrays, unsigned threads) {
  views_.clear();
  reserve(bytes_for(arrays));
  std::vector<std::uint64_t> lengths;
  std::uint64_t offset = 0;
  for (const ArrayView& array : arrays) {
    views_.push_back(array);
    views_.back().bytes = {memory_ + offset, array.bytes.size()};
    lengths.push_back(array.bytes.size());
    offset += rounded_up(array.bytes.size());
  }
  const std::vector<Block> blocks = blocks_of(lengths, kCopyBlockBytes);
  parallel_for(blocks.size(), threads, [&](std::size_t index, unsigned) {
    const auto [array, block] = blocks[index];
    const auto from = block_of(arrays[array].bytes, block, kCopyBlockBytes);
    std::byte* const copy = memory_ + (views_[array].bytes.data() - memory_);
    streaming_copy(copy + block * kCopyBlockBytes, from);
  });
}

}  // namespace ddp::ckpt
