// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/group/work.h"

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

#include "ddp_runtime/comm/group/awaited_work.h"

namespace ddp::comm {

struct Work::State final : Work::Completion {
  void wait() override {
    std::unique_lock lock(mutex);
    if (!is_done) {
      is_awaited = true;
      if (hurry) hurry();  // with the lock: until the work is done, the group exists
    }
    finished.wait(lock, [this] { return is_done; });
    if (error) std::rethrow_exception(error);
  }
  void wait_on(DeviceStream) override { wait(); }
  void wait_host() override { wait(); }
  bool done() override {
    const std::lock_guard lock(mutex);
    return is_done;
  }
  WorkTimes times() override {
    const std::lock_guard lock(mutex);
    return time;
  }

  std::mutex mutex;
  std::condition_variable finished;
  bool is_done = false;
  bool is_awaited = false;
  std::function<void()> hurry;
  std::exception_ptr error;
  WorkTimes time;
};

Work::Work(const std::shared_ptr<State>& state) : completion_(state) {}

std::shared_ptr<Work::State> Work::make_state() {
  auto state = std::make_shared<State>();
  state->time.queued = Clock::now();
  return state;
}

void Work::begin(State& state) {
  const std::lock_guard lock(state.mutex);
  state.time.started = Clock::now();
}

void Work::finish(State& state, std::exception_ptr error) {
  {
    const std::lock_guard lock(state.mutex);
    state.time.finished = Clock::now();
    state.error = std::move(error);
    state.is_done = true;
    state.hurry = nullptr;
  }
  state.finished.notify_all();
}

void call_on_wait(Work::State& state, std::function<void()> hurry) {
  const std::lock_guard lock(state.mutex);
  state.hurry = std::move(hurry);
}

bool is_awaited(Work::State& state) {
  const std::lock_guard lock(state.mutex);
  return state.is_awaited;
}

}  // namespace ddp::comm
