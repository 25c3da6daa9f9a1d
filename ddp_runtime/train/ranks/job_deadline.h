// SPDX-License-Identifier: Apache-2.0
// The time at which SLURM will end this job.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/deadline.h"

namespace ddp::train {

// Parses the output of `squeue -o %L`: "59", "12:30", "1:00:00", "2-03:00:00". Returns nullopt for
// any other text ("UNLIMITED", "NOT_SET", "INVALID").
std::optional<std::chrono::seconds> parse_time_left(std::string_view text) noexcept;

// Finds the time left of one job in the output of `squeue -o "%A %L"`. If a job's id is also the id
// of its array or heterogeneous job, squeue prints a line for each job in it.
std::optional<std::chrono::seconds> parse_time_left_of(std::string_view job,
                                                       std::string_view lines) noexcept;

struct JobEnd {
  std::optional<Deadline> deadline;  // nullopt outside of a job, and for a job without a limit
  std::string problem;               // one sentence if the limit is unknown; otherwise empty
};

// Asks squeue, because an administrator may have changed the limit since the job started. If squeue
// is not installed, or SLURM's controller does not respond within 30 seconds, SLURM_JOB_END_TIME
// decides: the end as of the job's start.
JobEnd job_end();

}  // namespace ddp::train
