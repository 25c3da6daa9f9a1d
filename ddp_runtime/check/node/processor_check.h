// SPDX-License-Identifier: Apache-2.0
// Compares the CPUs that this process may use with the number that SLURM promised the task.
#pragma once

#include <optional>
#include <vector>

#include "ddp_runtime/check/findings/environment.h"
#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

struct ProcessorFacts {
  std::optional<int> usable;    // CPUs in the affinity mask
  std::optional<int> online;    // CPUs online in the machine
  std::optional<int> promised;  // SLURM_CPUS_PER_TASK, if set
};

ProcessorFacts read_processors(const Environment& environment);

Finding evaluate_processors(const ProcessorFacts& facts);

}  // namespace ddp::check
