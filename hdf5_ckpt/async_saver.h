#pragma once
// Saving beside training: the state is copied, and written by a thread of its own while the
// originals change.

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "hdf5_ckpt/array.h"
#include "hdf5_ckpt/snapshot.h"

namespace ddp::ckpt {

struct AsyncOptions {
  // The most memory that copies may take. State that needs more is written before start() returns,
  // without a copy.
  std::uint64_t budget_bytes = std::numeric_limits<std::uint64_t>::max();
  unsigned copy_threads = 2;
  // How much more memory may be taken, asked before it is; nothing if that is not known. A copy for
  // which there is not enough is not made, as if it were beyond the budget. Empty: there is enough.
  std::function<std::optional<std::uint64_t>()> headroom = {};
};

// One save is in flight at most. Methods are called from one thread.
class AsyncSaver {
 public:
  // Saves what it is given; its exception is kept for wait().
  using Write = std::function<void(std::span<const ArrayView>)>;

  explicit AsyncSaver(AsyncOptions options = {}) : options_(std::move(options)) {}
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  // Waits for the save in flight; its exception is lost. Call wait() where that matters.
  ~AsyncSaver() = default;

  // Waits for the save in flight, as wait() does; copies; returns while `write` works on the copy.
  void start(std::span<const ArrayView> arrays, Write write);

  // Whether start() would not have to wait.
  bool idle() const noexcept { return !running_; }

  // Returns when nothing is in flight. Throws, once, what the last `write` has thrown.
  void wait();

  // Whether the last start() made no copy because of AsyncOptions::headroom.
  bool short_of_memory() const noexcept { return short_of_memory_; }

  // Memory held for copies.
  std::uint64_t memory() const noexcept { return snapshot_.capacity(); }

 private:
  bool fits(std::uint64_t bytes);

  AsyncOptions options_;
  bool short_of_memory_ = false;
  Snapshot snapshot_;
  std::exception_ptr failure_;         // of the thread, read after it is joined
  std::atomic<bool> running_ = false;  // the thread has not come to its end
  std::jthread thread_;                // last: ends before what it uses
};

}  // namespace ddp::ckpt
