#pragma once
// A copy of what nobody reads soon. A plain one reads each line that it overwrites and fills the
// caches with it: 13 GB/s with two threads where this one has 21. The C library's memcpy does
// likewise, but only for pieces larger than a share of the last cache.

#include <cstddef>
#include <span>

namespace ddp::ckpt {

// Copies from.size() bytes to `to`, which do not overlap. Other threads see them as after memcpy.
void streaming_copy(std::byte* to, std::span<const std::byte> from) noexcept;

}  // namespace ddp::ckpt
