// NVLink between nodes (GB200 NVL72 and its like), which NCCL uses only through an IMEX channel.
#pragma once

#include "spank_plugin/fabric/plan_builder.h"

namespace ddp::fabric {

// Warns where GPUs of a kind that is built into such domains have no channel that this task may
// open: NCCL then sends over the network what NVLink would carry, or ends. Which nodes form one
// domain (NVML's cluster and clique numbers) no file of a node says, so a domain is not judged.
void check_nvlink_domain(const Node& node, PlanBuilder& builder);

}  // namespace ddp::fabric
