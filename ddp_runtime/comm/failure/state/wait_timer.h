// SPDX-License-Identifier: Apache-2.0
// Measures how long one thread waits for other ranks. It reports a slow wait after a while, and
// fails after a timeout. It counts only time in which the thread runs without progress, so a job
// that is suspended for an hour continues when it is resumed.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/channel/running_clock.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"

namespace ddp::comm {

class WaitTimer {
 public:
  using TimePoint = RunningClock::TimePoint;
  // Describes which rank waits for which, and for how long.
  using WaitReport = std::function<std::string(std::chrono::milliseconds waited)>;

  // Reports a slow wait after each `report_after` without progress. Fails when the waits of one
  // operation add up to `timeout`.
  WaitTimer(FailureState& failures, std::chrono::milliseconds timeout,
            std::chrono::milliseconds report_after)
      : failures_(failures), timeout_(timeout), report_after_(report_after) {}
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;
  ~WaitTimer() { moved(); }

  // An operation starts.
  void begin(TimePoint now = std::chrono::steady_clock::now());
  // Data arrived or was sent, or the operation is over.
  void moved() noexcept;
  // Called repeatedly, at least every second, while there is no progress. Throws PeerFailure if a
  // rank has failed, and BrokenCollective with the report after the timeout.
  void check(const WaitReport& report, TimePoint now = std::chrono::steady_clock::now());

 private:
  FailureState& failures_;
  std::chrono::milliseconds timeout_;
  std::chrono::milliseconds report_after_;
  RunningClock clock_;
  TimePoint deadline_;
  TimePoint still_since_;  // time of the last progress
  TimePoint next_report_;
  bool waiting_ = false;  // whether the last call was check()
  bool stalled_ = false;  // whether a slow wait was reported
};

}  // namespace ddp::comm
