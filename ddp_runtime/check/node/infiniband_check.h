// SPDX-License-Identifier: Apache-2.0
// Finds InfiniBand and RoCE ports that are not active, not configured by a subnet manager, slower
// than the ports that they belong to, or without an address. Ports are compared only within the
// plan's compute fabric and with ports of one kind: storage, management and virtual ports differ
// from them by design.
#pragma once

#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "spank_plugin/fabric/choice/compute_ports.h"

namespace ddp::check {

// Returns no findings for a node without ports. `compute`: the result of choose_compute_ports.
std::vector<Finding> evaluate_infiniband(const fabric::Node& node,
                                         const fabric::ComputePorts& compute);

}  // namespace ddp::check
