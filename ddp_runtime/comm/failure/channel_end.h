// What the two kinds of ends of the error channel share: the ruling on which failure was the first.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "ddp_runtime/comm/failure/alarm.h"
#include "ddp_runtime/comm/failure/failure_state.h"

namespace ddp::comm {

class ChannelEnd {
 public:
  explicit ChannelEnd(FailureState& failures) : failures_(failures) {}
  ChannelEnd(const ChannelEnd&) = delete;
  ChannelEnd& operator=(const ChannelEnd&) = delete;
  virtual ~ChannelEnd() = default;

  // See ErrorChannel.
  std::optional<Failure> verdict(std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience, [this] { return verdict_ || hub_gone_; });
    return verdict_;
  }
  virtual bool others_gone(std::chrono::milliseconds) { return true; }

 protected:
  void set_verdict(Failure failure) {
    {
      const std::lock_guard lock(mutex_);
      if (!verdict_) verdict_ = std::move(failure);
    }
    changed_.notify_all();
  }

  // Suspicions of this rank ring the alarm; the last one is kept until it is taken.
  void listen_for_suspicions() {
    failures_.on_suspicion([this](const std::string& complaint) {
      {
        const std::lock_guard lock(mutex_);
        suspicion_ = complaint;
      }
      alarm_.ring();
    });
  }
  std::optional<std::string> take_suspicion() {
    const std::lock_guard lock(mutex_);
    return std::exchange(suspicion_, std::nullopt);
  }

  FailureState& failures_;
  Alarm alarm_;  // rings when there is something to tell, or it is time to leave
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by the mutex:
  std::optional<Failure> verdict_;
  std::optional<std::string> suspicion_;
  bool hub_gone_ = false;
  bool leaving_ = false;
};

// "node2, process 4711", for the messages of others about this process.
std::string who_am_i();
// What is said in place of a process that cannot speak any more.
Failure ended_without_a_word(int rank, const std::string& who);

}  // namespace ddp::comm
