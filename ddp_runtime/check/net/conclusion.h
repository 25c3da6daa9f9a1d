// SPDX-License-Identifier: Apache-2.0
// The verdict of a network check, from the results so far.
#pragma once

#include "ddp_runtime/check/net/net_state.h"

namespace ddp::check {

Verdict concluded(const NetState& state);

// The verdict to keep before MPI starts. If a node vanishes while MPI starts or runs, MPI libraries
// terminate the process, and SLURM terminates the whole step. The results up to that point must not
// be lost with this process.
Verdict interim_verdict(const NetState& state);

}  // namespace ddp::check
