// SPDX-License-Identifier: Apache-2.0
// The output of ddp-train at the end of a run.
#pragma once

#include "ddp_runtime/train/run/run_result.h"

namespace ddp::tools {

// For rank 0. Prints nothing about a run that had already finished: the trainer has reported that.
void print_result(const train::RunResult& result, bool dry_run);

}  // namespace ddp::tools
