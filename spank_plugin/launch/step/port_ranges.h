// SPDX-License-Identifier: Apache-2.0
// Sets of TCP ports in the format of SLURM and the kernel: "20086-20088,20090".
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ddp::launch {

struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;  // inclusive

  bool contains(std::uint16_t port) const noexcept { return first <= port && port <= last; }
  bool operator==(const PortRange&) const = default;
};

// Returns the ranges in the given order; ports are 1 to 65535. An empty text has no ranges. Throws
// LaunchError for any other text; `what` names it in the message.
std::vector<PortRange> parse_port_ranges(std::string_view text, std::string_view what);

// Returns all ports of the ranges, ascending, without duplicates.
std::vector<std::uint16_t> all_ports(std::span<const PortRange> ranges);

}  // namespace ddp::launch
