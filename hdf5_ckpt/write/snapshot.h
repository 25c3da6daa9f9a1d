// SPDX-License-Identifier: Apache-2.0
// A copy of arrays, whose memory is reused from save to save. Training may change the originals
// while the copy is written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "hdf5_ckpt/core/array.h"

namespace ddp::ckpt {

class Snapshot {
 public:
  Snapshot() = default;
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot();

  // Copies all arrays with `threads` threads, replacing the previous copy. Every copy starts at an
  // address aligned for O_DIRECT. The memory grows only if more bytes are needed than ever before,
  // and a copy into new pages is slower. Throws Error if there is not enough memory; the snapshot
  // is then empty.
  void take(std::span<const ArrayView> arrays, unsigned threads);

  // Returns views of the copies, which are valid until the next take().
  const std::vector<ArrayView>& views() const noexcept { return views_; }

  // Returns the number of bytes that take() would need for these arrays.
  static std::uint64_t bytes_for(std::span<const ArrayView> arrays) noexcept;

  // Returns the number of allocated bytes.
  std::uint64_t capacity() const noexcept { return capacity_; }

 private:
  void reserve(std::uint64_t bytes);
  void release() noexcept;

  std::byte* memory_ = nullptr;
  std::uint64_t capacity_ = 0;
  std::vector<ArrayView> views_;
};

}  // namespace ddp::ckpt
