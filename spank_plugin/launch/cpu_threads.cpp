#include "spank_plugin/launch/cpu_threads.h"

#include <algorithm>

namespace ddp::launch {

ThreadCount count_threads(const CpuFacts& cpus, std::uint32_t cpus_of_step,
                          std::uint32_t tasks_on_node, std::uint32_t ranks) {
  // SLURM may have been told of more CPUs than there are.
  const std::uint64_t here =
      cpus_of_step == 0 ? cpus.online : std::min(cpus_of_step, std::max(cpus.online, 1U));
  std::uint64_t cores = std::max(cpus.cores, 1U);
  ThreadCount count{1, "cores of this task"};
  if (cpus.cpus > here) {  // not bound: only a part of the mask is the step's
    cores = std::max<std::uint64_t>(cores * here / cpus.cpus, 1);
    count.rule = "cores of the step on this node";
  }
  if (cpus.cpus >= here && tasks_on_node > 1) {
    cores /= tasks_on_node;
    count.rule = "cores of the step on this node, shared by its tasks";
  }
  if (ranks > 1) {
    cores /= ranks;
    count.rule += ", shared by its workers";
  }
  count.threads = static_cast<std::uint32_t>(std::max<std::uint64_t>(cores, 1));
  return count;
}

}  // namespace ddp::launch
