// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/node_address.h"

#include "base/text.h"

namespace ddp::launch {
namespace {

// Returns the value of "KEY=value" among words that spaces separate; empty if there is none.
std::string_view value_of(std::string_view line, std::string_view key) {
  for (const auto word : split(line, ' ')) {
    if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=') {
      return word.substr(key.size() + 1);
    }
  }
  return {};
}

}  // namespace

std::optional<NodeAddress> node_address_in(std::string_view scontrol_output,
                                           std::string_view node) {
  const auto line = scontrol_output.substr(0, scontrol_output.find('\n'));
  const auto address = value_of(line, "NodeAddr");
  if (value_of(line, "NodeName") != node || address == node || !is_host_or_address(address)) {
    return std::nullopt;
  }
  return NodeAddress{std::string(node), std::string(address)};
}

std::string format_node_address(const NodeAddress& found) {
  return found.node + "=" + found.address;
}

std::optional<NodeAddress> parse_node_address(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) return std::nullopt;
  const auto address = text.substr(equals + 1);
  if (!is_host_or_address(address)) return std::nullopt;
  return NodeAddress{std::string(text.substr(0, equals)), std::string(address)};
}

}  // namespace ddp::launch
