// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/unknown_launcher.h"

#include "base/text.h"
#include "spank_plugin/launch/step/error.h"
#include "spank_plugin/launch/step/facts.h"

namespace ddp::launch {

void refuse_unknown_launcher(const EnvLookup& environment) {
  const auto rank = environment("PMI_RANK").value_or("");
  const auto size = environment("PMI_SIZE").value_or("");
  const auto launcher = detect_launcher(environment);
  if (parse_decimal(size).value_or(0) < 2 || launcher == Launcher::open_mpi) return;
  // SLURM names the step in PMI_JOBID; MPICH's launcher does not set it.
  const bool is_slurm =
      launcher == Launcher::slurm &&
      (environment("PMI_JOBID") || (rank == environment("SLURM_PROCID").value_or("") &&
                                    size == environment("SLURM_STEP_NUM_TASKS").value_or("")));
  if (is_slurm) return;
  throw LaunchError("PMI_RANK=" + quote_for_display(rank) +
                    " and PMI_SIZE=" + quote_for_display(size) +
                    ": this process was started by the mpirun of MPICH, Intel MPI or the like, "
                    "whose ranks ddp-launch does not know; start the tasks with srun, or with Open "
                    "MPI's mpirun");
}

}  // namespace ddp::launch
