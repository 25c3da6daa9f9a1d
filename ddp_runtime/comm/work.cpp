// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/work.h"

#include <condition_variable>
#include <mutex>

namespace ddp::comm {

struct Work::State {
  mutable std::mutex mutex;
  std::condition_variable finished;
  bool done = false;
  std::exception_ptr error;
  WorkTimes times;
};

std::shared_ptr<Work::State> Work::make_state() {
  auto state = std::make_shared<State>();
  state->times.queued = Clock::now();
  return state;
}

void Work::begin(State& state) {
  const std::lock_guard lock(state.mutex);
  state.times.started = Clock::now();
}

void Work::finish(State& state, std::exception_ptr error) {
  {
    const std::lock_guard lock(state.mutex);
    state.times.finished = Clock::now();
    state.error = std::move(error);
    state.done = true;
  }
  state.finished.notify_all();
}

void Work::wait() const {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->finished.wait(lock, [this] { return state_->done; });
  if (state_->error) std::rethrow_exception(state_->error);
}

bool Work::done() const {
  if (!state_) return true;
  const std::lock_guard lock(state_->mutex);
  return state_->done;
}

WorkTimes Work::times() const {
  if (!state_) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->times;
}

}  // namespace ddp::comm
