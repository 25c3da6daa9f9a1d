// SPDX-License-Identifier: Apache-2.0
// Memory at an address that O_DIRECT accepts on every file system.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ddp::ckpt {

// Alignment of addresses, file offsets and lengths.
inline constexpr std::uint64_t kAlignment = 4096;

// True if memory and file offset are aligned for O_DIRECT. The length must be aligned too.
inline bool begins_aligned(const std::byte* data, std::uint64_t offset) {
  return reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0 && offset % kAlignment == 0;
}

// Allocates on first use: most threads of a small save never need their buffer.
class AlignedBuffer {
 public:
  // Valid until the next call; the contents are unspecified. Throws std::bad_alloc.
  std::span<std::byte> get(std::size_t size) {
    if (memory_.size() < size) memory_ = allocate(size);
    return memory_.first(size);
  }

 private:
  // Uses huge pages where they fit: a disk request has a limited number of segments, and each page
  // that is not physically adjacent to the previous one needs its own segment.
  std::span<std::byte> allocate(std::size_t size) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t alignment = size < kHugePage ? kAlignment : kHugePage;
    memory_ = {};
    storage_ = std::make_unique_for_overwrite<std::byte[]>(size + alignment);  // not touched yet
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.get());
    std::byte* const begin = storage_.get() + (alignment - address % alignment) % alignment;
    const std::size_t huge = size / kHugePage * kHugePage;
    if (huge > 0) madvise(begin, huge, MADV_HUGEPAGE);  // a hint
    return {begin, size};
  }

  std::unique_ptr<std::byte[]> storage_;
  std::span<std::byte> memory_;  // the aligned part
};

}  // namespace ddp::ckpt
