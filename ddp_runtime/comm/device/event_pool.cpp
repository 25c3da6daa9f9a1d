// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/event_pool.h"

#include <cmath>

namespace ddp::comm {

EventPool::~EventPool() {
  for (cuda::Event event : free_) calls_.event_destroy(event);
}

EventPool::Event EventPool::take() {
  cuda::Event event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  if (event == nullptr) {
    // The thread of a caller may have another current device.
    const cuda::DeviceScope scope(calls_, device_);
    const auto flags = timing_ == Timing::yes ? cuda::kEventWithTiming : cuda::kEventWithoutTiming;
    check_device(calls_, calls_.event_create(&event, flags), "create an event");
  }
  return {event, [pool = shared_from_this()](cuda::Event used) {
            const std::lock_guard lock(pool->mutex_);
            pool->free_.push_back(used);
          }};
}

EventPool::Event EventPool::record(DeviceStream stream) {
  auto event = take();
  const cuda::DeviceScope scope(calls_,
                                device_);  // the default stream is that of the current device
  check_device(calls_, calls_.event_record(event.get(), stream), "record an event");
  return event;
}

bool EventPool::reached(const Event& event) const {
  const int code = calls_.event_query(event.get());
  if (code == cuda::kNotReady) {
    // The runtime keeps this answer as the thread's last error, where the program's next check of a
    // kernel launch would find it.
    calls_.take_last_error();
    return false;
  }
  check_device(calls_, code, "complete the work before an event");
  return true;
}

std::chrono::nanoseconds EventPool::elapsed(const Event& from, const Event& to) const {
  float milliseconds = 0;
  check_device(calls_, calls_.event_elapsed(&milliseconds, from.get(), to.get()),
               "tell the time between two events");
  return std::chrono::nanoseconds(std::llround(double{milliseconds} * 1e6));
}

void EventPool::make_wait(DeviceStream stream, const Event& event) const {
  const cuda::DeviceScope scope(calls_, device_);
  check_device(calls_, calls_.stream_wait_event(stream, event.get(), 0), "wait for an event");
}

}  // namespace ddp::comm
