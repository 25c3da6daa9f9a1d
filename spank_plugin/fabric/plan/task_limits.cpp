// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/task_limits.h"

#include <algorithm>
#include <iterator>

#include "spank_plugin/fabric/choice/affinity.h"
#include "spank_plugin/fabric/choice/nccl_choice.h"
#include "spank_plugin/fabric/files/cpu_list.h"

namespace ddp::fabric {

void check_cpus_of_gpu(const Node& node, const Request& request, PlanBuilder& builder) {
  const auto index = request.gpu ? find_gpu(node, *request.gpu) : std::nullopt;
  if (!index || request.cpus.empty()) return;
  const Gpu& gpu = node.gpus[*index];
  const auto local = parse_cpu_list(gpu.local_cpus);
  if (local.empty()) return;
  std::vector<std::uint32_t> both;
  std::set_intersection(local.begin(), local.end(), request.cpus.begin(), request.cpus.end(),
                        std::back_inserter(both));
  if (!both.empty()) return;
  builder.warn("the GPU of this task, " + gpu.bus_address + ", is local to the CPUs " +
               format_cpu_list(local) + ", but the task is bound to " +
               format_cpu_list(request.cpus) +
               ": bind each task to its GPU's NUMA node with srun --cpu-bind=map_ldom:N,N,..." +
               (gpu.numa_node ? " (this one's is " + std::to_string(*gpu.numa_node) + ")" : ""));
}

void check_locked_memory(const Node& node, const Request& request, PlanBuilder& builder) {
  constexpr std::uint64_t kEnough = std::uint64_t{1} << 30U;
  if (!request.locked_memory || *request.locked_memory >= kEnough) return;
  const std::string disabled = builder.value_of("NCCL_IB_DISABLE");
  const bool wants_rdma = node.can_use_verbs && !is_on_for_nccl(disabled) &&
                          !nccl_ports(node, builder.value_of("NCCL_IB_HCA")).empty();
  if (!wants_rdma) return;
  builder.warn("the task may lock only " + std::to_string(*request.locked_memory / 1024) +
               " KiB of memory (ulimit -l), but RDMA locks the memory it sends from, so NCCL will "
               "fail: ask the administrator for LimitMEMLOCK=infinity in slurmd's unit file and "
               "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf");
}

}  // namespace ddp::fabric
