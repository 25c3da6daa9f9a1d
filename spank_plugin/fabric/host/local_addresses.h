// SPDX-License-Identifier: Apache-2.0
// Addresses that the kernel knows and sysfs does not show. Only the kernel is asked: no name
// service, and no packet leaves the node.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/fabric/ip_address.h"

namespace ddp::fabric {

// Addresses of all interfaces that are up, in the order of getifaddrs(3). Empty if the call fails.
std::vector<InterfaceAddress> local_addresses();

// The source address of packets to `destination` (numeric, IPv4 or IPv6), by all of the kernel's
// rules, including policy routing. Returns nullopt if there is no route.
std::optional<std::string> source_address_to(const std::string& destination);

}  // namespace ddp::fabric
