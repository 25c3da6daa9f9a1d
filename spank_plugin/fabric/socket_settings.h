// The variables that name an interface: one decision for NCCL, Gloo, TensorPipe, Open MPI and UCX.
#pragma once

#include "spank_plugin/fabric/plan_builder.h"

namespace ddp::fabric {

// Also says in the plan which interface it is, and the node's address on it.
void set_sockets(const Node& node, const Request& request, Plan& plan, PlanBuilder& builder);

}  // namespace ddp::fabric
