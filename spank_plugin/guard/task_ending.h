// SPDX-License-Identifier: Apache-2.0
// How a guard ends its task when the step ends: it asks, and then forces it. Pure.
#pragma once

#include <optional>

#include "base/channel/running_clock.h"
#include "base/deadline.h"
#include "spank_plugin/guard/step_end.h"

namespace ddp::guard {

class TaskEnding {
 public:
  // How long a task that is told to end may take, for example to save its state. Time in which the
  // step is suspended does not count.
  static constexpr auto kGrace = std::chrono::seconds(30);

  // Returns the signal to send to the task now; 0 for none. `stands_still`: since it was told, the
  // task has made no progress, as one that waits for a rank that is gone.
  int next_signal(const std::optional<StepEnd>& end, Clock::time_point now, bool stands_still);

  bool has_told() const noexcept { return told_at_.has_value(); }
  // The status with which the guard ends, if the task did with this one (waitpid(2)).
  int status_for(int status) const noexcept;

 private:
  std::optional<Clock::time_point> told_at_;
  RunningClock clock_;
  int code_ = 0;
  bool is_forced_ = false;
};

}  // namespace ddp::guard
