// SPDX-License-Identifier: Apache-2.0
// Addresses that the kernel knows but sysfs does not show. These functions query only the kernel:
// they use no name service and send no packet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/fabric/files/ip_address.h"

namespace ddp::fabric {

// Returns the addresses of all interfaces that are up, in the order of getifaddrs(3); empty if that
// call fails.
std::vector<InterfaceAddress> local_addresses();

// Returns the source address of packets to `destination` (numeric, IPv4 or IPv6) by all of the
// kernel's rules, including policy routing. Returns nullopt if there is no route.
std::optional<std::string> source_address_to(const std::string& destination);

}  // namespace ddp::fabric
