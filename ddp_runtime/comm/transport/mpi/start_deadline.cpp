// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/mpi/start_deadline.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stop_token>

#include "base/channel/running_clock.h"
#include "base/host.h"

namespace ddp::comm {
namespace {

constexpr std::chrono::milliseconds kTick{500};

[[noreturn]] void give_up(std::chrono::milliseconds limit) {
  const std::string host = host_name();
  fmt::print(
      stderr,
      "slurm-ddp: process {} on {}: MPI did not connect the processes of this job within "
      "{:.3g} s; any process that does not print this message crashed or never started: check "
      "its output and its node (ddp-check)\n",
      getpid(), host, std::chrono::duration<double>(limit).count());
  std::fflush(stderr);
  std::_Exit(1);  // destructors cannot interrupt a thread that hangs in MPI_Init
}

}  // namespace

StartDeadline::StartDeadline(std::chrono::milliseconds limit)
    : thread_([limit](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any stopped;
        std::unique_lock lock(mutex);
        // Waits in small steps, so that time in which the job was suspended does not count.
        RunningClock clock(2 * kTick);
        const auto until = clock.now() + limit;
        while (!stop.stop_requested() && clock.look() < until) {
          const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - clock.now());
          stopped.wait_for(lock, stop, std::min(left, kTick), [] { return false; });
        }
        if (!stop.stop_requested()) give_up(limit);
      }) {}

}  // namespace ddp::comm
