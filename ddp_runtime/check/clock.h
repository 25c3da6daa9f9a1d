// The clock of deadlines and durations: it does not move when somebody sets the time.
#pragma once

#include <chrono>

namespace ddp::check {

using Clock = std::chrono::steady_clock;

}  // namespace ddp::check
