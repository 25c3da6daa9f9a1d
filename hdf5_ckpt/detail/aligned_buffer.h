#pragma once
// Memory at an address that O_DIRECT accepts on every file system.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

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
  std::span<std::byte> get(std::size_t size) {
    if (storage_.size() < size + kAlignment) storage_.resize(size + kAlignment);
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    const std::size_t pad = (kAlignment - address % kAlignment) % kAlignment;
    return std::span(storage_).subspan(pad, size);
  }

 private:
  std::vector<std::byte> storage_;
};

}  // namespace ddp::ckpt
