// SPDX-License-Identifier: Apache-2.0
// Prevents a crash in MPI_Init under SLURM 22.05. SLURM's PMIx plugin has two algorithms for a
// fence (PMIx_Fence) over the nodes of a step: a ring, its default for fences that exchange data,
// and a tree for fences that do not. In SLURM 22.05 the tree returns before the other nodes have
// arrived. MPI_Init ends with a fence without data, so a rank may send while another is still
// inside MPI_Init, and Open MPI 4.1 crashes there: once in several hundred starts of four ranks on
// two busy nodes.
#pragma once

#include "spank_plugin/spank/task_environment.h"

namespace ddp::spank {

// In srun: requests the ring for every fence by SLURM_PMIX_FENCE, which SLURM's PMIx plugin reads.
// Does nothing if the user chose an algorithm, or turned off the direct connections between nodes
// that the ring needs.
void ask_for_fence_that_waits() noexcept;

// In slurmstepd: removes the request from a task, because SLURM's PMIx plugin has read it by then,
// and the steps and jobs that the task starts would inherit it. The user's own choice stays.
void keep_fence_from_task(const TaskEnvironment& environment);

}  // namespace ddp::spank
