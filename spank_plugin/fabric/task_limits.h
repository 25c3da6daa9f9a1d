// SPDX-License-Identifier: Apache-2.0
// Limits that SLURM set for a task and that make it slow or fail on this node's hardware: CPUs far
// from its GPU, and too little lockable memory for RDMA.
#pragma once

#include "spank_plugin/fabric/plan_builder.h"

namespace ddp::fabric {

// Warns if none of the task's CPUs is local to its GPU. Does nothing if either is unknown.
void check_cpus_of_gpu(const Node& node, const Request& request, PlanBuilder& builder);

// Warns if the task would use RDMA and may lock less memory than RDMA needs.
void check_locked_memory(const Node& node, const Request& request, PlanBuilder& builder);

}  // namespace ddp::fabric
