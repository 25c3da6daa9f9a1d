// SPDX-License-Identifier: Apache-2.0
// Finds switches whose nodes look bad because of the switch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

using Leaves = std::map<std::string, std::string>;  // leaf switch of each node, by node name

// The nodes for which SLURM reports a switch.
Leaves leaves_of(const std::map<int, Hello>& present);

// Names a switch if more than half of the nodes below it, and at least two, are slow, lossy or cut
// off, while at most half of the other nodes are. Links to nodes below other switches count as
// well. Two switches implicated by the same links are named together.
std::vector<Finding> evaluate_leaves(const Findings& findings, const Leaves& leaves);

}  // namespace ddp::check
