// SPDX-License-Identifier: Apache-2.0
// The end of a collective on a device: an event on the stream of the launches.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>

#include "ddp_runtime/comm/device/event_pool.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"
#include "ddp_runtime/comm/group/work.h"

namespace ddp::comm {

class DeviceWork final : public Work::Completion {
 public:
  struct Settings {
    DeviceStream stream = nullptr;  // of the caller
    bool blocks = false;            // wait() waits like wait_host()
    std::function<void()> start;    // called before each wait; see LaunchQueue::message
  };
  // `failures` must live until the work is done or has failed.
  DeviceWork(std::shared_ptr<EventPool> events, const FailureState& failures, Settings settings);

  void wait() override;
  void wait_on(DeviceStream stream) override;
  void wait_host() override;
  bool done() override;
  WorkTimes times() override;

  // The queue's side. `end` is recorded behind the collective. began() gives an earlier time than
  // launched() for WorkTimes::started.
  void began();
  void launched(EventPool::Event end);
  void finished();
  // With the device's time of the end. It began at `started`, or when it was launched if that is
  // later.
  void finished(Clock::time_point started, Clock::time_point finished);
  void failed(std::exception_ptr error);

 private:
  enum class Phase { queued, launched, finished, failed };
  // Waits until the collective is launched. Throws the error if it failed.
  Phase await_launch();
  // Waits until the watchdog knows how the collective ended, and returns whether it completed, or
  // false if that takes too long. Throws the error.
  bool await_verdict();
  bool has_ended(const EventPool::Event& end);
  void note_end();

  std::shared_ptr<EventPool> events_;
  const FailureState& failures_;
  Settings settings_;

  std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::queued;
  EventPool::Event end_;
  std::exception_ptr error_;
  WorkTimes times_;
};

}  // namespace ddp::comm
