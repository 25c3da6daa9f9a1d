// SPDX-License-Identifier: Apache-2.0
// Whether any rank has failed. Every wait on every rank checks it, so that one rank's error ends
// all of them within one poll instead of after a timeout.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "ddp_runtime/comm/failure/failure.h"

namespace ddp::comm {

class FailureState {
 public:
  // The first failure is the cause and stays; later ones are its consequences and are dropped.
  // Returns whether this one was the first.
  bool fail(Failure failure);
  // `observer` is called once, with the first failure, on the thread that reports it. It must be
  // short and must not call back into this object. Setting another observer (or none) waits for a
  // call in progress.
  void on_first_failure(std::function<void(const Failure&)> observer);

  // Reports a slow wait, so that the observer can ask the other ranks whether it can still
  // complete. `report` says which rank waits for which.
  void report_slow_wait(const std::string& report);
  // Sets the observer of slow waits, which may be reported repeatedly.
  void on_slow_wait(std::function<void(const std::string&)> observer);
  // Counts the waits of this rank that have become long and are still going: if there are none, the
  // data path works or is not needed at the moment.
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
