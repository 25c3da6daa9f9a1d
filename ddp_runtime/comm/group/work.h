// SPDX-License-Identifier: Apache-2.0
// The handle of one asynchronous collective.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <utility>

#include "ddp_runtime/comm/group/memory.h"

namespace ddp::comm {

using Clock = std::chrono::steady_clock;

// The times when a collective was requested, when the communication thread began it, and when it
// ended.
struct WorkTimes {
  Clock::time_point queued;
  Clock::time_point started;
  Clock::time_point finished;
};

class Work {
 public:
  // The end of one collective, as a backend implements it. Thread-safe.
  class Completion {
   public:
    virtual ~Completion() = default;
    Completion() = default;
    Completion(const Completion&) = delete;
    Completion& operator=(const Completion&) = delete;

    virtual void wait() = 0;
    virtual void wait_on(DeviceStream stream) = 0;
    virtual void wait_host() = 0;
    virtual bool done() = 0;
    virtual WorkTimes times() = 0;
  };

  Work() = default;  // a finished collective
  static Work completed_by(std::shared_ptr<Completion> completion) {
    Work work;
    work.completion_ = std::move(completion);
    return work;
  }

  // All waits throw the error if the collective failed: PeerFailure if another rank failed,
  // RuntimeError otherwise.

  // Host memory: blocks without using the CPU until the collective is done on this rank. Device
  // memory: makes the stream of the collective's buffer wait, and blocks only until the collective
  // is on its way to the device. With MPI, that is when the hosts have its result, so wait as late
  // as possible.
  void wait() const {
    if (completion_) completion_->wait();
  }
  // Makes another stream wait for a collective of device memory. Waits like wait() for one of host
  // memory.
  void wait_on(DeviceStream stream) const {
    if (completion_) completion_->wait_on(stream);
  }
  // Blocks until the collective is done on this rank, for any memory.
  void wait_host() const {
    if (completion_) completion_->wait_host();
  }
  // Whether the collective is done on this rank, successfully or not.
  bool done() const { return !completion_ || completion_->done(); }
  // Valid after the collective is done. For device memory, `started` is the time of the launch and
  // `finished` the time at which this process noticed the end; a few milliseconds later, with NCCL,
  // they become the times of the device.
  WorkTimes times() const { return completion_ ? completion_->times() : WorkTimes(); }

  // The communication thread's side of a collective of host memory.
  struct State;
  explicit Work(const std::shared_ptr<State>& state);
  static std::shared_ptr<State> make_state();
  static void begin(State& state);
  static void finish(State& state, std::exception_ptr error);

 private:
  std::shared_ptr<Completion> completion_;
};

}  // namespace ddp::comm
