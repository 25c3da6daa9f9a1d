// SPDX-License-Identifier: Apache-2.0
// A thread that runs a task's slow jobs in order, so that the task can always answer a ping and
// receive the verdict. MPI is started and shut down on this thread.
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
  // Abandons the thread if it is still running.
  ~Worker();

  // Jobs must not throw, and must own their data: they may outlive this object.
  void post(std::function<void()> job);
  // Waits for all jobs. Returns true if they finished and the thread exited within the timeout.
  bool finish(std::chrono::milliseconds timeout);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ddp::check
