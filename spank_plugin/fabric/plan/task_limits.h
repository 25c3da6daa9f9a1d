// SPDX-License-Identifier: Apache-2.0
// Checks the limits that SLURM set for a task. On this node's hardware they may make the task slow
// (CPUs far from its GPU) or make it fail (too little lockable memory for RDMA).
#pragma once

#include "spank_plugin/fabric/plan/plan_builder.h"

namespace ddp::fabric {

// Warns if none of the task's CPUs is local to its GPU. Does nothing if either is unknown.
void check_cpus_of_gpu(const Node& node, const Request& request, PlanBuilder& builder);

// Warns if the task would use RDMA but may lock less memory than RDMA needs.
void check_locked_memory(const Node& node, const Request& request, PlanBuilder& builder);

}  // namespace ddp::fabric
