// SPDX-License-Identifier: Apache-2.0
// Checks that MPI can find the other tasks of a SLURM step. Open MPI asks a process manager (PMIx),
// which srun starts only on request. Without one, MPI_Init terminates the process with a message
// about Open MPI's configure options, which are not the cause.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp::comm {

// The value of an environment variable; nullptr if it is not set.
using Environment = std::function<const char*(const char* name)>;

// SLURM's interfaces, other than PMIx, through which an MPI library can connect the tasks of a
// step.
struct PmiSupport {
  bool pmi1 = false;  // the one that srun offers by default
  bool pmi2 = false;  // srun --mpi=pmi2
};

// Returns an error message if this is one of several tasks of a SLURM step without a process
// manager for this MPI library, and nullopt otherwise, or if another program than srun may have
// started the task.
std::optional<std::string> missing_process_manager(const Environment& environment,
                                                   const PmiSupport& support);

// The interfaces that this program's MPI library supports: for Open MPI, those with a component;
// both if that is unknown, or for an MPI library other than Open MPI.
PmiSupport pmi_support_of_mpi();

}  // namespace ddp::comm
