// SPDX-License-Identifier: Apache-2.0
// Whether any rank has failed. Every wait on every rank checks this state, so that one rank's error
// ends all waits within one poll instead of after a timeout.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "ddp_runtime/comm/peer_failure.h"

namespace ddp::comm {

// The cause of the job's end, for programs that decide whether and how to continue.
enum class FailureKind : std::uint8_t {
  error,         // an exception
  usage,         // a user error
  killed,        // a process exited without a goodbye
  stopped,       // a process is stopped, but its machine is up
  unreachable,   // a machine is down or cut off
  silent,        // a rank does not answer rank 0's status requests
  absent,        // a rank is busy outside the collective in which the others wait
  disagreement,  // the ranks called different collectives
  network,       // all ranks called the same collective, but messages do not arrive
};
const char* to_string(FailureKind kind);

struct Failure {
  int rank = -1;      // the rank that failed
  std::string text;   // that rank's own error message, unless the rank is lost
  bool lost = false;  // the rank died; the text was written by the rank that noticed
  // Possibly only a symptom: rank 0 asks all ranks before it names the cause.
  Symptom symptom = Symptom::none;
  // A UsageError: all ranks exit with 2.
  bool is_usage_error = false;
  FailureKind kind = FailureKind::error;
};

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
  void report_slow_wait(const std::string& report);
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
