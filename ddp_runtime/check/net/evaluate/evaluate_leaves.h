// Nodes that look bad together because they hang on one switch.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

using Leaves = std::map<std::string, std::string>;  // the switch of each node, by the node's name

// Of nodes that SLURM gave a switch.
Leaves leaves_of(const std::map<int, Hello>& present);

// Names a switch when more than half of the nodes below it, two at least, are found to be slow,
// lossy or cut off, by themselves or on links to nodes below other switches, and no more than half
// of the nodes elsewhere are. Two switches that the same links accuse are named together.
std::vector<Finding> evaluate_leaves(const Findings& findings, const Leaves& leaves);

}  // namespace ddp::check
