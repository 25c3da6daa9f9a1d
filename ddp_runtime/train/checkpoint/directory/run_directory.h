// SPDX-License-Identifier: Apache-2.0
// The owner of a run, and whether the run can write to its directories.
#pragma once

#include <filesystem>
#include <string>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/ranks/rank_hosts.h"
#include "hdf5_ckpt/core/owner_tag.h"

namespace ddp::train {

// The SLURM job id separates files left by the same job before a requeue from files of other jobs.
ckpt::OwnerTag this_owner();

// Returns why a run must not keep its checkpoints here; empty if it may. A path that is a
// checkpoint or lies among those of a run is a mistake in the path: the run would start from the
// beginning.
std::string why_misplaced(const std::filesystem::path& directory);

// Returns why the report must not be here; empty if it may. A checkpoint and what stands under the
// name of one are replaced or removed by the run that owns them; elsewhere in the directory of its
// checkpoints nothing is.
std::string why_misplaced_report(const std::filesystem::path& directory);

// Creates the directory if it does not exist and tries to write to it: a failure at the first save
// would waste the work until then. Returns why it cannot be written; empty if it can. `what`:
// "checkpoint" or "report".
std::string why_not_writable(const std::filesystem::path& directory, const char* what);

// Collective. Throws UsageError on all ranks, naming one that does not see the directory to which
// all ranks will write.
void require_seen_by_all(comm::Group& group, const std::filesystem::path& directory,
                         const RankHosts& hosts);

}  // namespace ddp::train
