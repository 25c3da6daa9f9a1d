// SPDX-License-Identifier: Apache-2.0
// A node's fabric in one phrase, for the line that each node prints at the start.
#pragma once

#include <string>
#include <vector>

#include "spank_plugin/fabric/node/node.h"

namespace ddp::fabric {

// Returns, for example, "fabric: 8 x mlx5 400 Gb/s InfiniBand, leader through ib0". `ports` are the
// ports that carry the data, as indices into node.ports. `interface` is empty if it is unknown or
// if the step has one node.
std::string summarize(const Node& node, const std::vector<std::size_t>& ports,
                      const std::string& interface, bool is_one_node);

}  // namespace ddp::fabric
