// Network interfaces: links that are down, ports that negotiated less than they should, packet
// sizes that do not fit each other.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "spank_plugin/fabric/network_interface.h"

namespace ddp::check {

struct InterfaceExpectations {
  std::optional<int> mtu = {};         // bytes, of every running interface on a wire
  std::optional<int> speed_mbps = {};  // at least, of every running interface on a wire
};

std::vector<Finding> evaluate_interfaces(std::span<const fabric::NetworkInterface> interfaces,
                                         const InterfaceExpectations& expected);

}  // namespace ddp::check
