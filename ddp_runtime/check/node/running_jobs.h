// SPDX-License-Identifier: Apache-2.0
// Whether jobs use this node. The memory and the disk space that they use is not the node's fault,
// and the node must not be drained for it.
#pragma once

#include <filesystem>

#include "ddp_runtime/check/environment.h"
#include "ddp_runtime/check/finding.h"

namespace ddp::check {

// Whether this process is part of a job, or SLURM runs a job on this node. In SLURM's prolog and
// epilog, the job that starts or ends does not count: it does not use anything yet, or any more.
// Its steps do not exist then, or one of them runs the script.
bool a_job_runs(const std::filesystem::path& root, const Environment& environment);

// Makes a CRITICAL finding a WARNING, and names the job as the possible cause.
void excuse_for_a_job(Finding& finding);

}  // namespace ddp::check
