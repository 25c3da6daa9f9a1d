// SPDX-License-Identifier: Apache-2.0
// Measures how long one thread waits for other ranks: after a while it reports a slow wait, and in
// the end it gives up. Only time in which the thread ran and nothing moved counts, so a job that is
// suspended for an hour continues when it is resumed.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "ddp_runtime/comm/failure/failure_state.h"
#include "ddp_runtime/comm/running_clock.h"

namespace ddp::comm {

class WaitTimer {
 public:
  using TimePoint = RunningClock::TimePoint;
  // Describes which rank waits for which, and for how long.
  using WaitReport = std::function<std::string(std::chrono::milliseconds waited)>;

  // Reports a slow wait each time nothing has moved for `report_after`; gives up when the waits of
  // one operation add up to `timeout`.
  WaitTimer(FailureState& failures, std::chrono::milliseconds timeout,
            std::chrono::milliseconds report_after)
      : failures_(failures), timeout_(timeout), report_after_(report_after) {}
  WaitTimer(const WaitTimer&) = delete;
  WaitTimer& operator=(const WaitTimer&) = delete;
  ~WaitTimer() { moved(); }

  // An operation starts.
  void begin(TimePoint now = std::chrono::steady_clock::now());
  // Something arrived or left, or the operation is over.
  void moved() noexcept;
  // Called repeatedly while nothing moves, at least every second. Throws PeerFailure if a rank has
  // failed, BrokenCollective with the report after the timeout.
  void check(const WaitReport& report, TimePoint now = std::chrono::steady_clock::now());

 private:
  FailureState& failures_;
  std::chrono::milliseconds timeout_;
  std::chrono::milliseconds report_after_;
  RunningClock clock_;
  TimePoint deadline_;
  TimePoint still_since_;  // since when nothing has moved
  TimePoint next_report_;
  bool waiting_ = false;  // the last call was check()
  bool stalled_ = false;  // and has reported it
};

}  // namespace ddp::comm
