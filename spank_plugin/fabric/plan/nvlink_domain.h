// SPDX-License-Identifier: Apache-2.0
// NVLink between nodes (GB200 NVL72 and similar), which NCCL uses only through an IMEX channel.
#pragma once

#include "spank_plugin/fabric/plan/plan_builder.h"

namespace ddp::fabric {

// Warns if the node has GPUs of a model that is built into NVLink domains but no IMEX channel that
// this task may open: NCCL then uses the network for traffic that NVLink would carry, or fails. No
// file shows which nodes form one domain (only NVML's cluster and clique numbers do), so the domain
// itself is not checked.
void check_nvlink_domain(const Node& node, PlanBuilder& builder);

}  // namespace ddp::fabric
