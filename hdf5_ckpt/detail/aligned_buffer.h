#pragma once
// Memory at an address that O_DIRECT accepts on every file system.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace ddp::ckpt {

// For addresses, file offsets and lengths alike.
inline constexpr std::uint64_t kAlignment = 4096;

// Whether memory and its place in the file begin as O_DIRECT wants it; the length must, too.
inline bool begins_aligned(const std::byte* data, std::uint64_t offset) {
  return reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0 && offset % kAlignment == 0;
}

// Allocates when first used: most threads of a small save never need theirs.
class AlignedBuffer {
 public:
  // Good until the next call; what is in it is of no meaning. Throws std::bad_alloc.
  std::span<std::byte> get(std::size_t size) {
    if (memory_.size() < size) memory_ = allocate(size);
    return memory_.first(size);
  }

 private:
  // Of huge pages where they fit: a disk takes a piece of memory in so many segments at most, and
  // each page that does not lie beside the one before is one.
  std::span<std::byte> allocate(std::size_t size) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t alignment = size < kHugePage ? kAlignment : kHugePage;
    memory_ = {};
    storage_ = std::make_unique_for_overwrite<std::byte[]>(size + alignment);  // not touched yet
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.get());
    std::byte* const begin = storage_.get() + (alignment - address % alignment) % alignment;
    const std::size_t huge = size / kHugePage * kHugePage;
    if (huge > 0) madvise(begin, huge, MADV_HUGEPAGE);  // a wish
    return {begin, size};
  }

  std::unique_ptr<std::byte[]> storage_;
  std::span<std::byte> memory_;  // the aligned part
};

}  // namespace ddp::ckpt
