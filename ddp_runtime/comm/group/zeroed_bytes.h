// SPDX-License-Identifier: Apache-2.0
// Process-private memory, for buckets and other buffers that a group hands out.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace ddp::comm {

// `bytes` zeros at an address that is a multiple of `alignment` (a power of two). Throws
// std::bad_alloc.
inline std::shared_ptr<std::byte> zeroed_bytes(std::size_t bytes, std::size_t alignment) {
  const std::align_val_t aligned{alignment};
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(::operator new(bytes, aligned)),
                                    [aligned](std::byte* p) { ::operator delete(p, aligned); });
  std::memset(memory.get(), 0, bytes);
  return memory;
}

}  // namespace ddp::comm
