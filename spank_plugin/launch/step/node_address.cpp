// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/node_address.h"

#include <algorithm>

#include "base/text.h"

namespace ddp::launch {
namespace {

// Returns the value of the first KEY=value among words with `separator` between them; empty if
// none.
std::string_view value_of(std::string_view text, char separator, std::string_view key) {
  for (const auto word : split(text, separator)) {
    if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=') {
      return word.substr(key.size() + 1);
    }
  }
  return {};
}

}  // namespace

std::string make_node_addresses(std::string_view scontrol_output, std::size_t max_text) {
  std::string addresses;
  for (const auto line : split(scontrol_output, '\n')) {
    const auto node = value_of(line, ' ', "NodeName");
    const auto address = value_of(line, ' ', "NodeAddr");
    if (address == node || !is_host_or_address(node) || !is_host_or_address(address)) continue;
    if (addresses.size() + node.size() + address.size() + 2 > max_text) break;
    addresses.append(addresses.empty() ? "" : ",").append(node).append("=").append(address);
  }
  return addresses;
}

std::optional<std::string> slurms_address_of(std::string_view node, std::string_view addresses) {
  const auto address = value_of(addresses, ',', node);
  if (node.empty() || !is_host_or_address(address)) return std::nullopt;
  return std::string(address);
}

bool is_slurms_address(std::string_view address, std::string_view addresses) {
  const auto entries = split(addresses, ',');
  return std::any_of(entries.begin(), entries.end(), [address](std::string_view entry) {
    const auto equals = entry.find('=');
    return equals != entry.npos && entry.substr(equals + 1) == address;
  });
}

}  // namespace ddp::launch
