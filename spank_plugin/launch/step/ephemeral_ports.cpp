// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/ephemeral_ports.h"

#include <algorithm>

#include "base/text.h"

namespace ddp::launch {
std::uint32_t count_ephemeral(PortRange range, std::string_view local_port_range,
                              std::string_view local_reserved_ports) {
  const auto text = trimmed(local_port_range);
  const auto gap = text.find_first_of(" \t");
  const auto lowest = parse_decimal(text.substr(0, gap), 65'535);
  const auto highest = gap == std::string_view::npos
                           ? std::nullopt
                           : parse_decimal(trimmed(text.substr(gap)), 65'535);
  if (!lowest || !highest) return 0;
  const auto reserved = parse_port_ranges(trimmed(local_reserved_ports), "ip_local_reserved_ports");
  const auto is_reserved = [&](std::uint16_t port) {
    return std::any_of(reserved.begin(), reserved.end(),
                       [port](const PortRange& r) { return r.contains(port); });
  };
  std::uint32_t count = 0;
  const auto last = std::min<std::uint64_t>(range.last, *highest);
  for (auto port = std::max<std::uint64_t>(range.first, *lowest); port <= last; ++port) {
    if (!is_reserved(static_cast<std::uint16_t>(port))) ++count;
  }
  return count;
}

}  // namespace ddp::launch
