// SPDX-License-Identifier: Apache-2.0
// Notices that this process was suspended (SIGSTOP, a suspended job, a paused virtual machine)
// while it waited: it returns from a short wait much later than it asked for.
#pragma once

#include <chrono>

#include "base/deadline.h"

namespace ddp::check {

class SuspensionWatch {
 public:
  // The waiting thread must look at least this often.
  static constexpr std::chrono::milliseconds kLookEvery{500};
  // A shorter gap may be a busy machine.
  static constexpr std::chrono::milliseconds kShortest{3'000};

  // Starts to watch one wait. The time before does not count, because the thread was working.
  void begin(Clock::time_point now = Clock::now()) noexcept { last_look_ = now; }

  // Returns how long the process was suspended since the last look; 0 if it was not.
  Clock::duration look(Clock::time_point now = Clock::now()) noexcept {
    const auto gap = now - last_look_;
    last_look_ = now;
    if (gap < kShortest) return {};
    total_ += gap;
    return gap;
  }

  Clock::duration total() const noexcept { return total_; }

 private:
  Clock::time_point last_look_ = Clock::now();
  Clock::duration total_{};
};

}  // namespace ddp::check
