// SPDX-License-Identifier: Apache-2.0
// A deadline for MPI_Init, which cannot be interrupted. MPI_Init waits for every process of the
// job, and waits forever if one of them died earlier; SLURM does not end the job without
// --kill-on-bad-exit.
#pragma once

#include <chrono>
#include <thread>

namespace ddp::comm {

class StartDeadline {
 public:
  // Exits this process with code 1 and one sentence on stderr, unless the object is destroyed
  // within `limit`.
  explicit StartDeadline(std::chrono::milliseconds limit);

 private:
  std::jthread thread_;  // asked to stop and joined by its destructor
};

}  // namespace ddp::comm
