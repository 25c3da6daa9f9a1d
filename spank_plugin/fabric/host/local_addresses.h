// What the kernel knows about addresses and sysfs does not show. Asks the kernel only: no name
// service, no packet leaves the node.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/fabric/ip_address.h"

namespace ddp::fabric {

// Addresses of all interfaces that are up, in the order of getifaddrs(3). Empty if the kernel does
// not answer.
std::vector<InterfaceAddress> local_addresses();

// The address that packets to `destination` (numeric, IPv4 or IPv6) would leave from, by all of the
// kernel's rules, policy routing included. Nothing if there is no way there.
std::optional<std::string> source_address_to(const std::string& destination);

}  // namespace ddp::fabric
