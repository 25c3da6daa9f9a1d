#pragma once
// Memory at an address that O_DIRECT accepts on every file system.

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
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
    if (size_ < size) allocate(size);
    return {memory_.get(), size};
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const noexcept { std::free(memory); }
  };

  // Of huge pages where they fit: a disk takes a piece of memory in so many segments at most, and
  // each page that does not lie beside the one before is one.
  void allocate(std::size_t size) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t alignment = size < kHugePage ? kAlignment : kHugePage;
    const std::size_t whole = (size + kAlignment - 1) / kAlignment * kAlignment;
    size_ = 0;
    void* memory = nullptr;
    if (posix_memalign(&memory, alignment, whole) != 0) throw std::bad_alloc();
    memory_.reset(static_cast<std::byte*>(memory));
    size_ = whole;
    if (whole >= kHugePage)
      madvise(memory, whole / kHugePage * kHugePage, MADV_HUGEPAGE);  // a wish
  }

  std::unique_ptr<std::byte, Free> memory_;
  std::size_t size_ = 0;
};

}  // namespace ddp::ckpt
