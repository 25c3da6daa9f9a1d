// SPDX-License-Identifier: Apache-2.0
// Finds InfiniBand and RoCE ports that are not active, not configured by a subnet manager, or
// slower than the node's other ports.
#pragma once

#include <span>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "spank_plugin/fabric/infiniband_port.h"

namespace ddp::check {

// Returns no findings for a node without ports.
std::vector<Finding> evaluate_infiniband(std::span<const fabric::InfinibandPort> ports);

}  // namespace ddp::check
