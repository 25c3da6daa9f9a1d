// The start of MPI by all tasks of the step together.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/step/leader.h"

namespace ddp::check {

// UNKNOWN: what MPI would have measured, and why it did not.
Finding mpi_not_run(const std::string& why);

// All tasks must be reachable. Without findings every task is in one MPI world; with some, MPI must
// not be used any more. `limit`: for MPI_Init and for finding each other; `timeout`: how long a
// task waits for a message of another one once MPI runs.
std::vector<Finding> start_mpi(Leader& leader, std::chrono::milliseconds limit,
                               std::chrono::milliseconds timeout);

}  // namespace ddp::check
