// SPDX-License-Identifier: Apache-2.0
// Base class of the two ends of the error channel. It keeps the verdict, which names the first
// failure, and terminates a process that does not exit on its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/channel/running_clock.h"
#include "base/secret/key.h"
#include "base/wake_event.h"
#include "ddp_runtime/comm/failure/liveness.h"
#include "ddp_runtime/comm/failure/state/failure_state.h"

namespace ddp::comm {

struct ChannelOptions {
  // File in which rank 0 records a failure; empty: no file.
  std::string dump = {};
  LivenessLimits liveness = {};
  // The step's key, if this process has one. If all ranks have the same step key, the channel's key
  // is derived from it.
  std::optional<Key> step_key = {};
  // Terminates this process. The channel's thread calls it if the process is still running
  // `liveness.exit` after a failure. May be empty.
  std::function<void()> end_process = {};
  // Reports a lost rank, on the rank that speaks for it (see ErrorChannel::deputy()). The channel's
  // thread calls it as soon as the loss is known, because the launcher may end the job before the
  // main thread has come out of its computation (srun with PMIx does). Must not block or throw. May
  // be empty.
  std::function<void(const Failure&)> report_loss = {};
};

class ChannelEnd {
 public:
  ChannelEnd(FailureState& failures, ChannelOptions options);
  ChannelEnd(const ChannelEnd&) = delete;
  ChannelEnd& operator=(const ChannelEnd&) = delete;
  virtual ~ChannelEnd() = default;

  // See ErrorChannel.
  std::optional<Failure> verdict(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return verdict_ || hub_gone_; });
    return verdict_;
  }
  virtual bool wait_for_peer_exit(std::chrono::milliseconds) { return true; }
  // From now on, this end reports lost ranks. See ChannelOptions::report_loss.
  void speak() noexcept { speaks_ = true; }

 protected:
  void report_if_lost(const Failure& failure) const {
    if (speaks_ && failure.lost && options_.report_loss) options_.report_loss(failure);
  }

  void set_verdict(Failure failure) {
    {
      const std::lock_guard lock(mutex_);
      if (!verdict_) verdict_ = std::move(failure);
    }
    changed_.notify_all();
  }

  // Makes reports of slow waits on this rank wake the thread. Keeps the latest report until it is
  // taken.
  void listen_for_slow_waits() {
    failures_.on_slow_wait([this](const std::string& report) {
      {
        const std::lock_guard lock(mutex_);
        slow_wait_ = report;
      }
      wake_event_.notify();
    });
  }
  std::optional<std::string> take_slow_wait() {
    const std::lock_guard lock(mutex_);
    return std::exchange(slow_wait_, std::nullopt);
  }

  // Used only by the channel's thread:

  // The longest sleep of the thread, which runs its checks several times per heartbeat.
  std::chrono::milliseconds tick() const;
  // Whether the next round of checks, or the next heartbeat, is due.
  bool tick_is_due();
  bool heartbeat_is_due();
  // See ChannelOptions::end_process.
  void end_if_stuck();

  FailureState& failures_;
  ChannelOptions options_;
  RunningClock clock_;    // used only by the thread
  WakeEvent wake_event_;  // notified when there is a message to send or the thread must exit
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex:
  std::optional<Failure> verdict_;
  std::optional<std::string> slow_wait_;
  bool hub_gone_ = false;
  bool leaving_ = false;

 private:
  std::atomic<bool> speaks_{false};
  RunningClock::TimePoint next_tick_;
  std::chrono::steady_clock::time_point next_heartbeat_;
  std::optional<RunningClock::TimePoint> failed_at_;
};

FailureKind kind_of(LossKind kind);
// "node2, process 4711": the name of this process in messages of other ranks.
std::string process_name();
// The failure reported on behalf of a process that exited without a goodbye.
Failure exited_unexpectedly(int rank, const std::string& who);

}  // namespace ddp::comm
