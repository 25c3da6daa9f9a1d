// SPDX-License-Identifier: Apache-2.0
// Saves in the background: copies the state, and writes the copy in a thread while training changes
// the originals.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "hdf5_ckpt/core/array.h"
#include "hdf5_ckpt/write/snapshot.h"

namespace ddp::ckpt {

struct AsyncOptions {
  // Maximum memory for copies. State that needs more is written before start() returns, without a
  // copy.
  std::uint64_t budget_bytes = std::numeric_limits<std::uint64_t>::max();
  unsigned copy_threads = 2;
  // Returns the number of bytes that may still be allocated, or nullopt if unknown; called before
  // memory is allocated. No copy is made that would exceed this number, as with the budget. No
  // limit if empty.
  std::function<std::optional<std::uint64_t>()> headroom = {};
};

// At most one save is in flight. Methods are called from one thread.
class AsyncSaver {
 public:
  // Writes its arrays. wait() rethrows its exception.
  using Write = std::function<void(std::span<const ArrayView>)>;

  explicit AsyncSaver(AsyncOptions options = {}) : options_(std::move(options)) {}
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  // Waits for the save in flight and discards its exception. Call wait() if the result matters.
  ~AsyncSaver() = default;

  // Waits for the save in flight, as wait() does, then copies the arrays and returns while `write`
  // writes the copy.
  void start(std::span<const ArrayView> arrays, Write write);

  // True if start() would not have to wait.
  bool idle() const noexcept { return !running_; }

  // Returns when nothing is in flight. Rethrows an exception of the last `write`, once.
  void wait();

  // True if the last start() made no copy because of AsyncOptions::headroom.
  bool short_of_memory() const noexcept { return short_of_memory_; }

  // Returns the number of bytes held for copies.
  std::uint64_t memory() const noexcept { return snapshot_.capacity(); }

 private:
  bool fits(std::uint64_t bytes);

  AsyncOptions options_;
  bool short_of_memory_ = false;
  Snapshot snapshot_;
  std::exception_ptr failure_;         // from the thread; read after the thread is joined
  std::atomic<bool> running_ = false;  // the thread has not finished
  std::jthread thread_;                // last: stops before the members it uses are destroyed
};

}  // namespace ddp::ckpt
