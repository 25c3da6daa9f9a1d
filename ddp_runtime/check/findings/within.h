// SPDX-License-Identifier: Apache-2.0
// A time limit for calls that may never return, for example because of a dead NFS server or a name
// server that does not answer.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>

namespace ddp::check {

// Runs `work` on a separate thread, waits at most `timeout` for it, and rethrows its exceptions.
// Returns nullopt if it is still running. The thread is then abandoned, so `work` must own
// everything it uses, and the process should exit with _Exit, because destructors would race with
// the thread.
template <class Work>
auto run_within(std::chrono::milliseconds timeout, Work work)
    -> std::optional<std::invoke_result_t<Work>> {
  std::packaged_task<std::invoke_result_t<Work>()> task(std::move(work));
  auto outcome = task.get_future();
  std::thread(std::move(task)).detach();
  if (outcome.wait_for(timeout) != std::future_status::ready) return std::nullopt;
  return outcome.get();
}

}  // namespace ddp::check
