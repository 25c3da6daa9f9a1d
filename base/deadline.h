// SPDX-License-Identifier: Apache-2.0
// The clock for deadlines and durations. Changes to the system time do not affect it.
#pragma once

#include <algorithm>
#include <chrono>

namespace ddp {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Returns the milliseconds until the deadline for poll(2): rounded up, at least 0, at most one day.
inline int milliseconds_until(Deadline deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<decltype(left)>(left, 0, 86'400'000));
}

}  // namespace ddp
