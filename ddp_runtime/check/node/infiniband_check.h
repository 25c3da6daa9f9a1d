// InfiniBand and RoCE ports: not active, unknown to the subnet manager, or slower than the ports
// beside them.
#pragma once

#include <span>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "spank_plugin/fabric/infiniband_port.h"

namespace ddp::check {

// No findings for a node without such ports.
std::vector<Finding> evaluate_infiniband(std::span<const fabric::InfinibandPort> ports);

}  // namespace ddp::check
