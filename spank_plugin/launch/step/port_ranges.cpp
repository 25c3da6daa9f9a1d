// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/port_ranges.h"

#include <set>
#include <string>

#include "base/hostlist.h"
#include "base/text.h"
#include "spank_plugin/launch/step/error.h"

namespace ddp::launch {

std::vector<PortRange> parse_port_ranges(std::string_view text, std::string_view what) {
  std::vector<PortRange> ranges;
  if (text.empty()) return ranges;
  const auto fail = [&] {
    throw LaunchError(std::string(what) + "=" + quote_for_display(text) +
                      " is not a list of ports such as 20086-20088,20090");
  };
  if (text.size() > kMaxListText) fail();
  for (const auto item : split(text, ',')) {
    const auto dash = item.find('-');
    const auto first = parse_decimal(item.substr(0, dash), 65'535);
    const auto last =
        dash == std::string_view::npos ? first : parse_decimal(item.substr(dash + 1), 65'535);
    if (!first || !last || *first == 0 || *first > *last) fail();
    ranges.push_back({static_cast<std::uint16_t>(*first), static_cast<std::uint16_t>(*last)});
  }
  return ranges;
}

std::vector<std::uint16_t> all_ports(std::span<const PortRange> ranges) {
  std::set<std::uint16_t> ports;
  for (const auto& range : ranges) {
    for (std::uint32_t port = range.first; port <= range.last; ++port) {
      ports.insert(static_cast<std::uint16_t>(port));
    }
  }
  return {ports.begin(), ports.end()};
}

}  // namespace ddp::launch
