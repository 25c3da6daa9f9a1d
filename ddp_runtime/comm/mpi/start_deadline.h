// A limit for what cannot be interrupted: MPI waits in MPI_Init for every process of the job, and
// where one of them died before, nothing ends the wait (SLURM does not without
// --kill-on-bad-exit).
#pragma once

#include <chrono>
#include <thread>

namespace ddp::comm {

class StartDeadline {
 public:
  // Ends this process with exit code 1 and one sentence on stderr, unless the object is destroyed
  // within `limit`.
  explicit StartDeadline(std::chrono::milliseconds limit);

 private:
  std::jthread thread_;  // asked to stop and joined by its destructor
};

}  // namespace ddp::comm
