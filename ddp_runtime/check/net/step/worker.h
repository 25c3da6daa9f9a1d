// One thread that does a task's slow work in order, so that the task itself can always answer a
// sign of life and hear the verdict. MPI is entered and left on this thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace ddp::check {

class Worker {
 public:
  Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  // Leaves a thread behind that has not ended by then.
  ~Worker();

  // Jobs must not throw, and must own what they use: they may outlive this object.
  void post(std::function<void()> job);
  // Whether all jobs were done and the thread ended in time.
  bool finish(std::chrono::milliseconds timeout);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ddp::check
