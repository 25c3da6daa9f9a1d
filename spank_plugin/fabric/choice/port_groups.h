// SPDX-License-Identifier: Apache-2.0
// Groups RDMA ports into fabrics, and decides which fabric carries the data of a computation.
#pragma once

#include <cstddef>
#include <vector>

#include "spank_plugin/fabric/choice/compute_ports.h"

namespace ddp::fabric {

// Moves those of `ports` (indices into node.ports) that do not belong to the compute fabric from
// chosen.ports to chosen.left_out, which gets the reasons.
void leave_out_other_fabrics(const Node& node, ComputePorts& chosen);

}  // namespace ddp::fabric
