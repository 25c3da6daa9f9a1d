// SPDX-License-Identifier: Apache-2.0
// The variables that select the same interface for NCCL, Gloo, TensorPipe, Open MPI and UCX.
#pragma once

#include "spank_plugin/fabric/plan/plan_builder.h"

namespace ddp::fabric {

// Sets the variables, and records the interface and the node's address on it in the plan.
void set_sockets(const Node& node, const Request& request, Plan& plan, PlanBuilder& builder);

}  // namespace ddp::fabric
