// SPDX-License-Identifier: Apache-2.0
// Ports that the kernel assigns to outgoing connections. A listener on one of them fails
// occasionally, because a connection of another program happens to use it.
#pragma once

#include <cstdint>
#include <string_view>

#include "spank_plugin/launch/step/port_ranges.h"

namespace ddp::launch {

// Returns the number of ports of `range` that the kernel may assign, given the contents of
// /proc/sys/net/ipv4/ip_local_port_range ("32768\t60999") and ip_local_reserved_ports ("",
// "61000-61010"). Returns 0 (unknown) if the first text cannot be parsed. Throws LaunchError if the
// second text is invalid.
std::uint32_t count_ephemeral(PortRange range, std::string_view local_port_range,
                              std::string_view local_reserved_ports);

}  // namespace ddp::launch
