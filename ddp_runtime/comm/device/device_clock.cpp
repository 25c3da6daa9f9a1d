// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/device_clock.h"

#include <algorithm>

namespace ddp::comm {

Clock::time_point DeviceClock::look(const EventPool::Event& event, Clock::time_point before,
                                    Clock::time_point now) {
  const auto guess = last_ ? time_of_last_ + events_->elapsed(last_, event) : now;
  time_of_last_ = std::clamp(guess, before, now);
  last_ = event;
  return time_of_last_;
}

Clock::time_point DeviceClock::time_of(const EventPool::Event& event) const {
  return time_of_last_ - events_->elapsed(event, last_);
}

}  // namespace ddp::comm
