// SPDX-License-Identifier: Apache-2.0
// Why a job ended badly: the first cause and a remedy, from what SLURM knows and from the texts
// that the job has left.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "ddp_runtime/post_mortem/job_record.h"

namespace ddp::post_mortem {

// A file of output: of a whole job, or of one of its tasks.
struct Log {
  std::string name;
  std::string text;
};

struct Explanation {
  std::string what;    // one sentence without a full stop
  std::string remedy;  // another one; empty if the cause says what to do
};

// Returns nullopt if neither says why. In this order: a lost node; the line of --ddp=watch; lack of
// memory; the first error that is not the echo of another one; the first task that srun names; the
// time limit, preemption or cancellation; an echo. `job` is null if SLURM was not asked or did not
// know.
std::optional<Explanation> explain(const JobRecord* job, std::span<const Log> logs);

}  // namespace ddp::post_mortem
