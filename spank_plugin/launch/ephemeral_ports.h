#pragma once
// Ports that the kernel hands out for outgoing connections. A listener on one of them fails now
// and then, because a connection of some other program happens to hold it.

#include <cstdint>
#include <string_view>

#include "spank_plugin/launch/port_ranges.h"

namespace ddp::launch {

// How many ports of `range` the kernel may hand out, given the contents of
// /proc/sys/net/ipv4/ip_local_port_range ("32768\t60999") and ip_local_reserved_ports ("",
// "61000-61010"). 0 if the first text cannot be read: nothing is known then. Throws LaunchError for
// a bad second text.
std::uint32_t count_ephemeral(PortRange range, std::string_view local_port_range,
                              std::string_view local_reserved_ports);

}  // namespace ddp::launch
