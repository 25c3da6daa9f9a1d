// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/worker.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace ddp::check {

struct Worker::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  bool stopping = false;
  bool ended = false;

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || !jobs.empty(); });
      if (jobs.empty()) break;
      auto job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      job = nullptr;  // destroyed on this thread, outside the lock
      lock.lock();
    }
    ended = true;
    changed.notify_all();
  }
};

Worker::Worker() : state_(std::make_shared<State>()) {
  std::thread([state = state_] { state->work(); }).detach();
}

Worker::~Worker() {
  finish(std::chrono::milliseconds(0));
}

void Worker::post(std::function<void()> job) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->jobs.push_back(std::move(job));
  }
  state_->changed.notify_all();
}

bool Worker::finish(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->changed.notify_all();
  return state_->changed.wait_for(lock, timeout, [this] { return state_->ended; });
}

}  // namespace ddp::check
