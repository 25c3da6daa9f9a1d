// SPDX-License-Identifier: Apache-2.0
// The number of threads a rank should compute with: the number of cores it has for itself.
#pragma once

#include <cstdint>
#include <string>

#include "spank_plugin/launch/step/facts.h"

namespace ddp::launch {

struct ThreadCount {
  std::uint32_t threads = 1;  // at least 1
  std::string rule;           // one phrase
};

// Counts the cores in the task's affinity mask, which SLURM has set by now, but at most the task's
// share of the step's cores on the node: SLURM gives every task of a step the same number of CPUs,
// so a larger mask includes CPUs of other tasks (--cpu-bind=none, sockets, ldoms). `ranks` is the
// number of ranks that the task will become (1, or torchrun's workers).
ThreadCount count_threads(const CpuFacts& cpus, std::uint32_t cpus_of_step,
                          std::uint32_t tasks_on_node, std::uint32_t ranks);

}  // namespace ddp::launch
