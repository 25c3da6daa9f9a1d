// SPDX-License-Identifier: Apache-2.0
// A clock that advances only while its thread runs. While a job is suspended (scontrol suspend,
// SIGSTOP, a paused virtual machine), the system clock advances. A deadline on the system clock
// would pass during the suspension although no rank is late.
#pragma once

#include <algorithm>
#include <chrono>

namespace ddp {

class RunningClock {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // The thread must look at the clock at least every `longest_gap`, because a longer gap counts as
  // `longest_gap`.
  explicit RunningClock(std::chrono::milliseconds longest_gap = std::chrono::seconds(1),
                        TimePoint start = std::chrono::steady_clock::now())
      : longest_gap_(longest_gap), last_look_(start), now_(start) {}

  // Returns the start time plus the time that counts. `real` must never decrease.
  TimePoint look(TimePoint real = std::chrono::steady_clock::now()) {
    now_ += std::min<std::chrono::steady_clock::duration>(real - last_look_, longest_gap_);
    last_look_ = real;
    return now_;
  }
  // Returns the result of the last look().
  TimePoint now() const noexcept { return now_; }

 private:
  std::chrono::milliseconds longest_gap_;
  TimePoint last_look_;
  TimePoint now_;
};

}  // namespace ddp
