// SPDX-License-Identifier: Apache-2.0
// The handle of one asynchronous collective.
#pragma once

#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>

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
  Work() = default;  // a finished collective

  // Blocks without using the CPU until the collective is done on this rank. Throws the error if it
  // failed: PeerFailure if another rank failed, RuntimeError otherwise.
  void wait() const;
  bool done() const;
  // Valid after the collective is done.
  WorkTimes times() const;

  // The communication thread's side.
  struct State;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static std::shared_ptr<State> make_state();
  static void begin(State& state);
  static void finish(State& state, std::exception_ptr error);

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ddp::comm
