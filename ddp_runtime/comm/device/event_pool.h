// SPDX-License-Identifier: Apache-2.0
// Events of one device that are used again and again, because creating one takes microseconds.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <vector>

#include "ddp_runtime/comm/group/memory.h"
#include "ddp_runtime/gpu/cuda_runtime.h"

namespace ddp::comm {

// Thread-safe.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  // Returns to the pool, which it keeps alive, when the last copy is destroyed.
  using Event = std::shared_ptr<void>;

  // Events with times cost the device a little more.
  enum class Timing : bool { no, yes };
  EventPool(const cuda::Runtime& calls, int device, Timing timing = Timing::no)
      : calls_(calls), device_(device), timing_(timing) {}
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();

  const cuda::Runtime& calls() const noexcept { return calls_; }
  // An event that stands for the work that is on `stream` now. Throws RuntimeError.
  Event record(DeviceStream stream);
  // Whether that work is done. Does not block. Throws RuntimeError with the device's error.
  bool reached(const Event& event) const;
  // The time from one event to another, negative if it is the earlier one. Both must have been
  // recorded, and found reached, by a pool with times. Throws RuntimeError.
  std::chrono::nanoseconds elapsed(const Event& from, const Event& to) const;
  // Makes `stream` wait for that work. Throws RuntimeError.
  void make_wait(DeviceStream stream, const Event& event) const;

 private:
  Event take();

  cuda::Runtime calls_;
  int device_;
  Timing timing_;
  std::mutex mutex_;
  std::vector<cuda::Event> free_;
};

}  // namespace ddp::comm
