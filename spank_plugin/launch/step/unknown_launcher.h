// SPDX-License-Identifier: Apache-2.0
// Launchers whose ranks ddp-launch cannot determine from the environment.
#pragma once

#include "spank_plugin/launch/step/environment.h"

namespace ddp::launch {

// Throws LaunchError if this process was started by the mpirun of MPICH, Intel MPI or another one
// that speaks PMI: it would count as a world of one, or, inside a step, as the step's task that
// runs the launcher's daemon. Accepts SLURM's own PMI (srun --mpi=pmi2).
void refuse_unknown_launcher(const EnvLookup& environment);

}  // namespace ddp::launch
