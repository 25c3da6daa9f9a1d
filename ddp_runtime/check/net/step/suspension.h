// SPDX-License-Identifier: Apache-2.0
// Notices that this process was suspended (SIGSTOP, a suspended job, a paused virtual machine):
// looks at the clock that were due at least twice a second are seconds apart. A thread of its own
// looks, so a suspension is noticed whatever the other threads were doing when it began.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>

#include "base/deadline.h"

namespace ddp::check {

// Adds up the gaps between looks at the clock that are too long for a busy machine.
class SuspensionRecord {
 public:
  static constexpr std::chrono::milliseconds kLookEvery{500};
  // A shorter gap may be a busy machine.
  static constexpr std::chrono::milliseconds kShortest{3'000};

  explicit SuspensionRecord(Clock::time_point start) noexcept : last_look_(start) {}

  // Returns how long the process was suspended from the start until `now`.
  Clock::duration look(Clock::time_point now) noexcept {
    const auto gap = now - last_look_;
    last_look_ = now;
    if (gap >= kShortest) total_ += gap;
    return total_;
  }

 private:
  Clock::time_point last_look_;
  Clock::duration total_{};
};

class SuspensionWatch {
 public:
  SuspensionWatch();

  // Returns how long this process was suspended since the watch began; 0 if it was not. A
  // suspension that has just ended counts, even if the caller runs before the watching thread does.
  // Thread-safe.
  Clock::duration total() const;

 private:
  mutable std::mutex mutex_;
  mutable SuspensionRecord record_{Clock::now()};
  std::jthread thread_;  // asked to stop and joined by its destructor
};

}  // namespace ddp::check
