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

// Returns an error message if this is one of several tasks of a SLURM step without a process
// manager for Open MPI, and nullopt otherwise. `speaks_pmi1`: the MPI library works with the
// interface that srun offers by default.
std::optional<std::string> missing_process_manager(const Environment& environment,
                                                   bool speaks_pmi1);

// Whether this program's MPI library can connect the tasks of a step without PMIx: an Open MPI with
// the component for SLURM's PMI-1, or an MPI library other than Open MPI.
bool mpi_speaks_pmi1();

}  // namespace ddp::comm
