// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/plan/cpu_threads.h"

#include <algorithm>

namespace ddp::launch {

ThreadCount count_threads(const CpuFacts& cpus, std::uint32_t cpus_of_step,
                          std::uint32_t tasks_on_node, std::uint32_t ranks) {
  // SLURM's configuration may list more CPUs than exist.
  const std::uint64_t here =
      cpus_of_step == 0 ? cpus.online : std::min(cpus_of_step, std::max(cpus.online, 1U));
  std::uint64_t cores = std::max(cpus.cores, 1U);
  ThreadCount count{1, "cores of this task"};
  const std::uint64_t of_step = cpus.cpus == 0 ? 1 : cores * here / cpus.cpus;
  if (const std::uint64_t share = of_step / std::max(tasks_on_node, 1U); share < cores) {
    cores = share;
    count.rule = tasks_on_node > 1 ? "cores of the step on this node, shared by its tasks"
                                   : "cores of the step on this node";
  }
  if (ranks > 1) {
    cores /= ranks;
    count.rule += ", shared by its workers";
  }
  count.threads = static_cast<std::uint32_t>(std::max<std::uint64_t>(cores, 1));
  return count;
}

}  // namespace ddp::launch
