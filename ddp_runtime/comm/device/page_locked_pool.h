// SPDX-License-Identifier: Apache-2.0
// Page-locked memory of the host that is used again and again, because allocating takes
// milliseconds and may wait for the GPU. Only copies of such memory run beside the program.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "ddp_runtime/gpu/cuda_runtime.h"

namespace ddp::comm {

// Used by one thread, whose current device is the one that copies.
class PageLockedPool : public std::enable_shared_from_this<PageLockedPool> {
 public:
  // Returns to the pool, which it keeps alive, when the last copy is destroyed.
  using Memory = std::shared_ptr<std::byte>;

  // `limit`: bytes that are allocated at a time, except for the memory of messages.
  PageLockedPool(const cuda::Runtime& calls, std::size_t limit) : calls_(calls), limit_(limit) {}
  PageLockedPool(const PageLockedPool&) = delete;
  PageLockedPool& operator=(const PageLockedPool&) = delete;
  ~PageLockedPool();

  // Memory within the limit; nullptr if there is no room until other memory returns. A request that
  // is larger than the limit has room if no other memory is in use. Throws RuntimeError.
  Memory take(std::size_t bytes);
  // Memory beyond the limit. Throws RuntimeError.
  Memory take_beyond_limit(std::size_t bytes);
  // Never frees this memory, because something may still write to it.
  void abandon(const Memory& memory) noexcept;

 private:
  struct Block {
    std::size_t bytes = 0;
    bool counts = false;  // toward the limit
  };

  Memory take_block(const Block& block);
  std::byte* allocate(std::size_t bytes);
  void give_back(std::byte* memory) noexcept;
  void free_largest() noexcept;

  cuda::Runtime calls_;
  std::size_t limit_;
  std::size_t used_ = 0;    // bytes in use that count
  std::size_t unused_ = 0;  // bytes in free_
  std::map<std::byte*, Block> in_use_;
  std::multimap<std::size_t, std::byte*> free_;  // by size
};

}  // namespace ddp::comm
