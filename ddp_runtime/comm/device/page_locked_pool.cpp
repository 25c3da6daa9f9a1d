// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/page_locked_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/errors.h"

namespace ddp::comm {
namespace {

// The next of eight sizes between two powers of two, so that buffers of similar sizes share blocks
// and at most an eighth of a block is unused.
std::size_t size_of_block(std::size_t bytes) {
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t wanted = std::max(bytes, kPageBytes);
  const std::size_t step = std::max(std::bit_floor(wanted) / 8, kPageBytes);
  return (wanted + step - 1) / step * step;
}

}  // namespace

PageLockedPool::~PageLockedPool() {
  while (!free_.empty()) free_largest();
}

PageLockedPool::Memory PageLockedPool::take(std::size_t bytes) {
  const Block block{size_of_block(bytes), true};
  if (used_ > 0 && used_ + block.bytes > limit_) return nullptr;
  return take_block(block);
}

PageLockedPool::Memory PageLockedPool::take_beyond_limit(std::size_t bytes) {
  return take_block({size_of_block(bytes), false});
}

PageLockedPool::Memory PageLockedPool::take_block(const Block& block) {
  std::byte* memory = nullptr;
  if (const auto found = free_.find(block.bytes); found != free_.end()) {
    memory = found->second;
    unused_ -= block.bytes;
    free_.erase(found);
  } else {
    const std::size_t more = block.counts ? block.bytes : 0;
    while (!free_.empty() && used_ + unused_ + more > limit_) free_largest();
    memory = allocate(block.bytes);
  }
  in_use_.emplace(memory, block);
  if (block.counts) used_ += block.bytes;
  return {memory, [pool = shared_from_this()](std::byte* p) { pool->give_back(p); }};
}

std::byte* PageLockedPool::allocate(std::size_t bytes) {
  void* memory = nullptr;
  const int code = calls_.allocate_host(&memory, bytes);
  if (code == cuda::kSuccess) return static_cast<std::byte*>(memory);
  throw RuntimeError(
      fmt::format("CUDA cannot allocate {} bytes of page-locked memory of the host "
                  "(cudaMallocHost): {} ({}); request more memory for the job",
                  bytes, calls_.error_string(code), code));
}

void PageLockedPool::give_back(std::byte* memory) noexcept {
  const auto found = in_use_.find(memory);
  if (found == in_use_.end()) return;  // abandoned
  const Block block = found->second;
  in_use_.erase(found);
  if (block.counts) used_ -= block.bytes;
  unused_ += block.bytes;
  free_.emplace(block.bytes, memory);
  while (!free_.empty() && used_ + unused_ > limit_) free_largest();
}

void PageLockedPool::abandon(const Memory& memory) noexcept {
  in_use_.erase(memory.get());
}

void PageLockedPool::free_largest() noexcept {
  const auto largest = std::prev(free_.end());
  unused_ -= largest->first;
  calls_.free_host(largest->second);
  free_.erase(largest);
}

}  // namespace ddp::comm
