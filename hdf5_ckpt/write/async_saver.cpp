// SPDX-License-Identifier: Apache-2.0
// Starts one thread per save. A permanent thread that waits for the next save would not be cheaper.

#include "hdf5_ckpt/write/async_saver.h"

#include <utility>

#include "hdf5_ckpt/io/signals_blocked.h"

namespace ddp::ckpt {
bool AsyncSaver::fits(std::uint64_t bytes) {
  short_of_memory_ = false;
  if (bytes > options_.budget_bytes) return false;
  // Memory held for copies counts as available: it is reused, or released before more is allocated.
  if (bytes <= snapshot_.capacity() || !options_.headroom) return true;
  const auto left = options_.headroom();
  short_of_memory_ = left && bytes - snapshot_.capacity() > *left;
  return !short_of_memory_;
}

void AsyncSaver::start(std::span<const ArrayView> arrays, Write write) {
  wait();
  if (!fits(Snapshot::bytes_for(arrays))) {
    write(arrays);
    return;
  }
  snapshot_.take(arrays, options_.copy_threads);
  const SignalsBlocked blocked;  // the thread inherits the mask
  running_ = true;
  try {
    thread_ = std::jthread([this, write = std::move(write)] {
      try {
        write(snapshot_.views());
      } catch (...) {
        failure_ = std::current_exception();
      }
      running_ = false;
    });
  } catch (...) {
    running_ = false;
    throw;
  }
}

void AsyncSaver::wait() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace ddp::ckpt
