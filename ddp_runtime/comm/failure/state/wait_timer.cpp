// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/failure/state/wait_timer.h"

#include "ddp_runtime/comm/group/peer_failure.h"

namespace ddp::comm {

void WaitTimer::begin(TimePoint now) {
  moved();
  clock_ = RunningClock(std::chrono::seconds(1), now);
  deadline_ = now + timeout_;
}

void WaitTimer::moved() noexcept {
  waiting_ = false;
  if (stalled_) failures_.end_stall();
  stalled_ = false;
}

void WaitTimer::check(const WaitReport& report, TimePoint now) {
  failures_.throw_if_failed();
  const auto before = clock_.now();
  const auto counted = clock_.look(now);
  if (!waiting_) {
    // Time before the first check() does not count, because the thread was working.
    waiting_ = true;
    deadline_ += counted - before;
    still_since_ = counted;
    next_report_ = counted + report_after_;
    return;
  }
  if (counted > deadline_) throw BrokenCollective(Symptom::long_wait, report(timeout_));
  if (counted <= next_report_) return;
  next_report_ = counted + report_after_;
  if (!stalled_) failures_.begin_stall();
  stalled_ = true;
  failures_.report_slow_wait(
      report(std::chrono::duration_cast<std::chrono::milliseconds>(counted - still_since_)));
}

}  // namespace ddp::comm
