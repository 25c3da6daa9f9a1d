// SPDX-License-Identifier: Apache-2.0
// Checks network interfaces: links that are down, ports with a lower speed than expected, and MTUs
// that do not match.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "spank_plugin/fabric/choice/compute_ports.h"

namespace ddp::check {

// The requirements hold for the interfaces that carry the data (data_interfaces.h), because a node
// has slower ones by design, such as that for its management.
struct InterfaceExpectations {
  std::optional<int> mtu = {};          // in bytes
  std::optional<int> speed_mbps = {};   // minimum
  std::vector<std::string> names = {};  // those that carry the data; empty: chosen by the check
};

// `compute`: the result of choose_compute_ports.
std::vector<Finding> evaluate_interfaces(const fabric::Node& node,
                                         const fabric::ComputePorts& compute,
                                         const InterfaceExpectations& expected);

}  // namespace ddp::check
