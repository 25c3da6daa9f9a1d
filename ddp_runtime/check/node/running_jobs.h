// SPDX-License-Identifier: Apache-2.0
// Whether jobs use this node. The memory and the disk space that they use is not the node's fault,
// and the node must not be drained for it.
#pragma once

#include <filesystem>

#include "ddp_runtime/check/findings/environment.h"
#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

// Whether SLURM runs a job on this node other than the one that this process belongs to, in whose
// steps, prolog or epilog it runs: that job does not use anything yet, or any more, or it wants to
// know.
bool a_job_runs(const std::filesystem::path& root, const Environment& environment);

// Makes a CRITICAL finding a WARNING, and names the job as the possible cause.
void excuse_for_a_job(Finding& finding);

}  // namespace ddp::check
