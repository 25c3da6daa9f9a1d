// SPDX-License-Identifier: Apache-2.0
// The main routing table in /proc/net.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/fabric/files/ip_address.h"

namespace ddp::fabric {

struct Route {
  IpAddress network;
  int prefix_bits = 0;  // 0: the default route
  std::uint32_t metric = 0;
  std::string interface;

  bool operator==(const Route&) const = default;
};

// Parses /proc/net/route and /proc/net/ipv6_route. Malformed lines are skipped, and routes that are
// down or reject are left out. At most 4096 routes each.
std::vector<Route> parse_ipv4_routes(std::string_view text);
std::vector<Route> parse_ipv6_routes(std::string_view text);

// Returns the matching route with the longest prefix, then the lowest metric, then the first; null
// if no route matches.
const Route* find_route(std::span<const Route> routes, const IpAddress& address) noexcept;

}  // namespace ddp::fabric
