// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/transport/tcp/end_step.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string>

#include "base/subprocess.h"

namespace ddp::comm {

void kill_this_step() noexcept {
  const char* const job = std::getenv("SLURM_JOB_ID");
  const char* const step = std::getenv("SLURM_STEP_ID");
  // In a batch script or an interactive shell, the step is that of the shell itself.
  if (job == nullptr || step == nullptr || std::getenv("SLURM_STEP_NUM_TASKS") == nullptr) return;
  try {
    Subprocess::running({"scancel", "--signal=KILL", std::string(job) + "." + step})
        .wait(Clock::now() + std::chrono::seconds(20));
  } catch (const std::exception&) {  // no process can be started
  }
}

}  // namespace ddp::comm
