// SPDX-License-Identifier: Apache-2.0
// Starts MPI on all tasks of the step.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/step/leader.h"

namespace ddp::check {

// UNKNOWN: what MPI would have measured, and why it was not.
Finding mpi_not_run(const std::string& why);

// All tasks must be reachable. If there are no findings, every task is in one MPI world; otherwise
// MPI must not be used any more. `limit`: time for MPI_Init and for joining the world; `timeout`:
// how long a task waits for a message from another one once MPI runs.
std::vector<Finding> start_mpi(Leader& leader, std::chrono::milliseconds limit,
                               std::chrono::milliseconds timeout);

}  // namespace ddp::check
