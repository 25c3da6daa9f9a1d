// SPDX-License-Identifier: Apache-2.0
// Bounded waiting for calls that the kernel or a library may never finish: a dead NFS server, a
// name server that does not answer.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <thread>
#include <utility>

namespace ddp::check {

// Runs `work` on a separate thread and waits for it at most `timeout`; rethrows its exceptions.
// Returns nullopt if it is still running: the thread is then abandoned, so `work` must own
// everything it uses, and the process should exit with _Exit rather than run destructors beside it.
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
