// SPDX-License-Identifier: Apache-2.0
// Judges the links of a node's physical interfaces.
#pragma once

#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "spank_plugin/fabric/choice/compute_ports.h"

namespace ddp::check {

// An enabled interface that something uses should have a link: one with a network of its own, of a
// bond, or of the compute fabric's RoCE ports, has a finding of its own. The others, such as free
// on-board ports that the system enables, have one finding in total. `required`: names of
// interfaces that must run.
std::vector<Finding> evaluate_links(const fabric::Node& node, const fabric::ComputePorts& compute,
                                    const std::vector<std::string>& required);

}  // namespace ddp::check
