// The clock of deadlines and durations: it does not move when somebody sets the time.
#pragma once

#include <chrono>

namespace ddp::check {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace ddp::check
