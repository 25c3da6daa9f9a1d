// What SLURM gave to a task that makes it slow or fail on this node's hardware: CPUs far from its
// GPU, and too little memory that RDMA may lock.
#pragma once

#include "spank_plugin/fabric/plan_builder.h"

namespace ddp::fabric {

// Warns if none of the task's CPUs is local to its GPU. Nothing where either is unknown.
void check_cpus_of_gpu(const Node& node, const Request& request, PlanBuilder& builder);

// Warns if the task may lock less memory than RDMA needs, and would use RDMA.
void check_locked_memory(const Node& node, const Request& request, PlanBuilder& builder);

}  // namespace ddp::fabric
