// SPDX-License-Identifier: Apache-2.0
// When SLURM will end this job.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "base/deadline.h"

namespace ddp::train {

// What `squeue -o %L` prints: "59", "12:30", "1:00:00", "2-03:00:00". Nothing for anything else
// ("UNLIMITED", "NOT_SET", "INVALID").
std::optional<std::chrono::seconds> parse_time_left(std::string_view text) noexcept;

// The same of one job in what `squeue -o "%A %L"` prints. Asked for a job whose id is also that of
// its array, or of a heterogeneous job, squeue prints a line for each of their jobs.
std::optional<std::chrono::seconds> parse_time_left_of(std::string_view job,
                                                       std::string_view lines) noexcept;

// Asks squeue, which knows the limit also after an administrator has changed it. Nothing outside of
// a job, without a limit, where there is no squeue, and if SLURM's controller does not answer
// within 30 seconds.
std::optional<Deadline> job_deadline();

}  // namespace ddp::train
