// SPDX-License-Identifier: Apache-2.0
// Whether any rank has failed. Every wait on every rank checks this state, so that one rank's error
// ends all waits within one poll instead of after a timeout.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "ddp_runtime/comm/failure/state/failure.h"

namespace ddp::comm {

class FailureState {
 public:
  // Records the first failure, which is the cause, and ignores later failures, which are its
  // consequences. Returns whether this failure was the first.
  bool fail(Failure failure);
  // Sets the observer, which is called once, with the first failure, on the thread that reports it.
  // The observer must be short and must not call back into this object. Setting another observer
  // (or none) waits for a call in progress.
  void on_first_failure(std::function<void(const Failure&)> observer);

  // Reports a slow wait, so that the observer can ask the other ranks whether it can still
  // complete. `report` says which rank waits for which.
  void report_slow_wait(const std::string& report) const;
  // Sets the observer of slow waits, which may be reported repeatedly.
  void on_slow_wait(std::function<void(const std::string&)> observer);
  // Count this rank's current waits that have become long. If there are none, the data path works
  // or is not in use.
  void begin_stall() noexcept { stalls_.fetch_add(1, std::memory_order_relaxed); }
  void end_stall() noexcept { stalls_.fetch_sub(1, std::memory_order_relaxed); }
  bool stalled() const noexcept { return stalls_.load(std::memory_order_relaxed) > 0; }

  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  std::optional<Failure> failure() const;
  // Throws PeerFailure with the cause if there is one.
  void throw_if_failed() const;

 private:
  std::atomic<bool> failed_{false};
  std::atomic<int> stalls_{0};
  mutable std::mutex mutex_;
  std::optional<Failure> failure_;
  std::function<void(const Failure&)> observer_;
  std::function<void(const std::string&)> slow_wait_observer_;
};

}  // namespace ddp::comm
