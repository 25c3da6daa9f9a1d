// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/task_ending.h"

#include <sys/wait.h>

#include <csignal>

namespace ddp::guard {

int TaskEnding::next_signal(const std::optional<StepEnd>& end, Clock::time_point now,
                            bool stands_still) {
  if (!told_at_) {
    if (!end || now < end->at) return 0;
    told_at_ = now;
    clock_ = RunningClock(std::chrono::seconds(1), now);
    code_ = end->code;
    return SIGTERM;
  }
  const bool is_late = clock_.look(now) - *told_at_ >= kGrace;
  if (is_forced_ || (!stands_still && !is_late)) return 0;
  is_forced_ = true;
  return SIGKILL;
}

int TaskEnding::status_for(int status) const noexcept {
  const bool is_replaced = told_at_ && code_ != 0 && status != 0;
  return is_replaced ? W_EXITCODE(code_, 0) : status;
}

}  // namespace ddp::guard
