// SPDX-License-Identifier: Apache-2.0
// Interfaces that are measured separately.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

// Physical ports that all nodes have under the same name and at the same speed, and of those the
// fastest; empty if there is only one.
std::vector<std::string> alike_rails(const std::map<int, Hello>& present);

// Names the nodes without an address on the rail; OK if all have one. If no more than half of the
// nodes have it, it was not meant for this step: UNKNOWN without a node.
std::vector<Finding> evaluate_rail(const std::string& rail, const std::map<int, Hello>& present);

}  // namespace ddp::check
