// SPDX-License-Identifier: Apache-2.0
// `ddp-report why`: why a job ended.
#pragma once

#include <string>
#include <vector>

namespace ddp::tools {

// Each text is a job's number or the path of a log; with the logs of several tasks, the first error
// of all of them counts. Prints one line, and one more with a remedy. Returns the exit code: 0, or
// 3 if the cause is not found. Throws UsageError for a job that SLURM does not know, and
// RuntimeError for a file that cannot be read.
int explain_end(const std::vector<std::string>& jobs_or_logs);

}  // namespace ddp::tools
