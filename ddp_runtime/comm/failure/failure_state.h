// Whether the world is still whole. Every wait of every rank looks here, so that one rank's error
// ends all of them within one poll instead of after a timeout.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "ddp_runtime/comm/peer_failure.h"

namespace ddp::comm {

// What ended the job, for programs that decide how to go on.
enum class FailureKind : std::uint8_t {
  error,         // an exception
  usage,         // a mistake of the user's
  killed,        // a process ended without a goodbye
  stopped,       // a process is stopped, its machine is well
  unreachable,   // a machine is down or cut off
  silent,        // a rank does not answer the questions of rank 0
  absent,        // a rank does something else than what the others wait for
  disagreement,  // ranks called different collectives
  network,       // all ranks came, and messages do not arrive
};
const char* to_string(FailureKind kind);

struct Failure {
  int rank = -1;      // the rank that failed
  std::string text;   // its own words
  bool lost = false;  // it could not say so itself: the text is somebody else's about it
  // Not the cause, perhaps: rank 0 asks all ranks before it says whose failure this is.
  Symptom symptom = Symptom::none;
  // A UsageError: all ranks end with 2.
  bool is_usage_error = false;
  FailureKind kind = FailureKind::error;
};

class FailureState {
 public:
  // The first failure is the cause and stays; later ones are its consequences and are dropped.
  // Returns whether this one was the first.
  bool fail(Failure failure);
  // Called once, with the first failure, on the thread that reports it. It must be short and not
  // call back. Setting another (or none) waits for a call under way.
  void on_first_failure(std::function<void(const Failure&)> observer);

  // A wait is getting long: whoever listens may find out, by asking the other ranks, that it is in
  // vain. `report` says who waits for what.
  void report_slow_wait(const std::string& report);
  // Likewise for suspicions, which may come again and again.
  void on_slow_wait(std::function<void(const std::string&)> observer);
  // How many waits of this rank are long and go on: without any, the data path works or is not
  // needed now.
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
