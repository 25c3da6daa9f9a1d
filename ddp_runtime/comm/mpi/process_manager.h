// Whether MPI can find the other tasks of a SLURM step. Open MPI asks a process manager (PMIx) that
// srun starts only if it is told to; without one MPI_Init ends the process with a text about
// configure options of Open MPI, which is not what is wrong.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace ddp::comm {

// The value of an environment variable; nullptr if it is not set.
using Environment = std::function<const char*(const char* name)>;

// What to tell the user if this is one of several tasks of a SLURM step that has no process manager
// for Open MPI; nullopt if all is well or if this is no such task. `speaks_pmi1`: the MPI library
// can do with what srun offers by default.
std::optional<std::string> missing_process_manager(const Environment& environment,
                                                   bool speaks_pmi1);

// Whether the MPI library of this program can connect the tasks of a step without PMIx: an Open MPI
// with the component for SLURM's PMI-1, or another library than Open MPI.
bool mpi_speaks_pmi1();

}  // namespace ddp::comm
