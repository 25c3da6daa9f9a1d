#pragma once
// How many threads a rank should compute with: the cores that are its own.

#include <cstdint>
#include <string>

#include "spank_plugin/launch/facts.h"

namespace ddp::launch {

struct ThreadCount {
  std::uint32_t threads = 1;  // at least 1
  std::string rule;           // one phrase
};

// From the task's affinity mask, which SLURM has set by now. A mask that holds all CPUs that the
// step has on the node, with several tasks there, is no task's own: then they share it. `ranks` is
// how many ranks the task will become (1, or torchrun's workers).
ThreadCount count_threads(const CpuFacts& cpus, std::uint32_t cpus_of_step,
                          std::uint32_t tasks_on_node, std::uint32_t ranks);

}  // namespace ddp::launch
