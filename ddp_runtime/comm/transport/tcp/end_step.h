// SPDX-License-Identifier: Apache-2.0
// What MPI_Abort does, for ranks that MPI does not connect.
#pragma once

namespace ddp::comm {

// Asks SLURM to kill all processes of this step, including this one and those that are stopped.
// Returns if srun did not start this process, or if
// SLURM does not answer.
void kill_this_step() noexcept;

}  // namespace ddp::comm
