// SPDX-License-Identifier: Apache-2.0
// Progress of long operations.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>

namespace ddp::ckpt {

// Called with the bytes processed so far and the total, from one thread at a time.
using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

// Adds up the progress of several threads and reports it from one thread at a time.
class Meter {
 public:
  Meter(const Progress& progress, std::uint64_t total) : progress_(progress), total_(total) {}

  void add(std::uint64_t bytes) {
    if (!progress_) return;
    const std::lock_guard lock(mutex_);
    done_ += bytes;
    progress_(done_, total_);
  }

 private:
  const Progress& progress_;  // outlives this
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::mutex mutex_;
};

}  // namespace ddp::ckpt
