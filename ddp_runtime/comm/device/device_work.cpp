// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/device_work.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "base/errors.h"

namespace ddp::comm {
namespace {

// The watchdog decides about all works within this time after a failure, unless ending the
// communicator takes longer.
constexpr std::chrono::seconds kVerdictTime{10};

void pause_between_polls(int polls) {
  constexpr int kYields = 100;
  if (polls < kYields) return std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

}  // namespace

DeviceWork::DeviceWork(std::shared_ptr<EventPool> events, const FailureState& failures,
                       Settings settings)
    : events_(std::move(events)), failures_(failures), settings_(std::move(settings)) {
  times_.queued = Clock::now();
}

DeviceWork::Phase DeviceWork::await_launch() {
  if (settings_.start) settings_.start();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return phase_ != Phase::queued; });
  if (phase_ == Phase::failed) std::rethrow_exception(error_);
  return phase_;
}

void DeviceWork::wait() {
  settings_.blocks ? wait_host() : wait_on(settings_.stream);
}

void DeviceWork::wait_on(DeviceStream stream) {
  await_launch();
  try {
    events_->make_wait(stream, end_);  // end_ does not change after the launch
  } catch (const RuntimeError&) {
    if (!await_verdict()) throw;  // as in has_ended()
  }
}

// An error of the GPU does not say which collective it ended. The watchdog meets the same error,
// and its verdict does; or it has seen the collective end before the error.
bool DeviceWork::has_ended(const EventPool::Event& end) {
  try {
    return events_->reached(end);
  } catch (const RuntimeError&) {
    if (!await_verdict()) throw;
    return true;
  }
}

// Looks at the event itself instead of waiting for the watchdog, which looks less often.
void DeviceWork::wait_host() {
  const bool was_finished = await_launch() == Phase::finished;
  for (int polls = 0; !has_ended(end_); ++polls) {
    if (failures_.failed()) break;
    pause_between_polls(polls);
  }
  // After a failure, the communicator is aborted and its kernels leave: the event is reached, but
  // the data is undefined.
  if (!was_finished && failures_.failed()) {
    await_verdict();
    return;
  }
  note_end();
}

void DeviceWork::note_end() {
  const std::lock_guard lock(mutex_);
  if (times_.finished == Clock::time_point()) times_.finished = Clock::now();
}

bool DeviceWork::await_verdict() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kVerdictTime,
                    [this] { return phase_ == Phase::finished || phase_ == Phase::failed; });
  if (phase_ == Phase::finished) return true;
  if (error_) std::rethrow_exception(error_);
  failures_.throw_if_failed();
  return false;
}

bool DeviceWork::done() {
  if (settings_.start) settings_.start();
  EventPool::Event end;
  {
    const std::lock_guard lock(mutex_);
    if (phase_ == Phase::finished || phase_ == Phase::failed) return true;
    end = end_;
  }
  // After a failure, only the watchdog knows.
  if (!end || failures_.failed() || !has_ended(end)) return false;
  note_end();
  return true;
}

WorkTimes DeviceWork::times() {
  const std::lock_guard lock(mutex_);
  return times_;
}

void DeviceWork::began() {
  const std::lock_guard lock(mutex_);
  times_.started = Clock::now();
}

void DeviceWork::launched(EventPool::Event end) {
  {
    const std::lock_guard lock(mutex_);
    if (times_.started == Clock::time_point()) times_.started = Clock::now();
    end_ = std::move(end);
    phase_ = Phase::launched;
  }
  changed_.notify_all();
}

void DeviceWork::finished() {
  {
    const std::lock_guard lock(mutex_);
    if (times_.finished == Clock::time_point()) times_.finished = Clock::now();
    phase_ = Phase::finished;
  }
  changed_.notify_all();
}

void DeviceWork::finished(Clock::time_point started, Clock::time_point finished) {
  {
    const std::lock_guard lock(mutex_);
    times_.started = std::min(std::max(times_.started, started), finished);
    times_.finished = finished;
    phase_ = Phase::finished;
  }
  changed_.notify_all();
}

void DeviceWork::failed(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    times_.finished = Clock::now();
    error_ = std::move(error);
    phase_ = Phase::failed;
  }
  changed_.notify_all();
}

}  // namespace ddp::comm
