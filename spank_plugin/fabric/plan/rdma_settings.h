// SPDX-License-Identifier: Apache-2.0
// The variables that select RDMA ports and addresses on nodes where the libraries choose wrongly.
#pragma once

#include "spank_plugin/fabric/choice/compute_ports.h"
#include "spank_plugin/fabric/plan/plan_builder.h"

namespace ddp::fabric {

// Sets NCCL_IB_HCA if the node also has ports of another fabric.
void set_hcas(const Node& node, const ComputePorts& compute, PlanBuilder& builder);

// Sets NCCL_IB_GID_INDEX or NCCL_IB_ADDR_FAMILY on RoCE. `interface` is the one that reaches the
// leader.
void set_gids(const Node& node, const std::string& interface, PlanBuilder& builder);

// Sets UCX_NET_DEVICES if requested: if several ports are equally near, UCX by itself gives all
// ranks the same one.
void bind_ucx(const Node& node, const Request& request, const ComputePorts& compute,
              PlanBuilder& builder);

}  // namespace ddp::fabric
