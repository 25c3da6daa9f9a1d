// SPDX-License-Identifier: Apache-2.0
// Launchers whose ranks cannot be read from the environment as a whole.
#pragma once

#include "spank_plugin/launch/environment.h"

namespace ddp::launch {

// Throws LaunchError if this process was started by the mpirun of MPICH, Intel MPI or another one
// that speaks PMI: it would count as a world of one, or, inside a step, as the step's task that
// runs the launcher's daemon. SLURM's own PMI (srun --mpi=pmi2) is not meant.
void refuse_unknown_launcher(const EnvLookup& environment);

}  // namespace ddp::launch
