// SPDX-License-Identifier: Apache-2.0
// Checks network interfaces: links that are down, ports with a lower speed than expected, and MTUs
// that do not match.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "spank_plugin/fabric/network_interface.h"

namespace ddp::check {

struct InterfaceExpectations {
  std::optional<int> mtu = {};         // required of every running physical interface, in bytes
  std::optional<int> speed_mbps = {};  // minimum for every running physical interface
};

std::vector<Finding> evaluate_interfaces(std::span<const fabric::NetworkInterface> interfaces,
                                         const InterfaceExpectations& expected);

}  // namespace ddp::check
