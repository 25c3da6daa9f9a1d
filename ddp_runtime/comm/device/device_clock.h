// SPDX-License-Identifier: Apache-2.0
// When the work of a device was done, on the clock of this process.
//
// Note [Device clock]
// A device tells how much time passed between two events, but not when. The host knows that an
// event was not reached when it looked, and was when it looked again. The first event's time is
// such a guess, the others' follow from the event before, and all must lie between two looks. So a
// wrong first guess is corrected, and the two clocks stay together although one of them is faster.
#pragma once

#include <memory>

#include "ddp_runtime/comm/device/event_pool.h"
#include "ddp_runtime/comm/group/work.h"

namespace ddp::comm {

// Not thread-safe.
class DeviceClock {
 public:
  // The pool must have events with times.
  explicit DeviceClock(std::shared_ptr<EventPool> events) : events_(std::move(events)) {}

  // The time of an event that was not reached at `before`, and was at `now`. Events must come in
  // the order in which the device reaches them. Throws RuntimeError with the device's error.
  Clock::time_point look(const EventPool::Event& event, Clock::time_point before,
                         Clock::time_point now);
  // The time of an event that was reached shortly before that of the last look().
  Clock::time_point time_of(const EventPool::Event& event) const;

 private:
  std::shared_ptr<EventPool> events_;
  EventPool::Event last_;
  Clock::time_point time_of_last_;
};

}  // namespace ddp::comm
