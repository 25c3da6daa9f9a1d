// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/choice/nccl_choice.h"

#include <algorithm>
#include <cstdlib>

#include "base/text.h"

namespace ddp::fabric {
namespace {

constexpr std::size_t kMaxNcclInterfaces = 16;  // NCCL's MAX_IFS

// A value of NCCL_SOCKET_IFNAME or NCCL_IB_HCA: [^][=]entry,entry..
struct Pattern {
  bool excludes = false;
  bool exact = false;
  std::vector<std::string_view> entries;
};

Pattern parse_pattern(std::string_view value, std::size_t most) {
  Pattern pattern;
  if (value.starts_with('^')) {
    pattern.excludes = true;
    value.remove_prefix(1);
  }
  if (value.starts_with('=')) {
    pattern.exact = true;
    value.remove_prefix(1);
  }
  for (const auto entry : split(value, ',', most)) {
    if (!entry.empty()) pattern.entries.push_back(entry);
  }
  return pattern;
}

bool names_match(std::string_view name, std::string_view entry, bool exact) {
  return exact ? name == entry : name.starts_with(entry);
}

bool takes_interface(const Pattern& pattern, std::string_view name) {
  const bool matches = pattern.entries.empty() ||
                       std::any_of(pattern.entries.begin(), pattern.entries.end(), [&](auto entry) {
                         return names_match(name, entry.substr(0, entry.find(':')), pattern.exact);
                       });
  return matches != pattern.excludes;
}

bool takes_port(const Pattern& pattern, const InfinibandPort& port) {
  const auto matches = [&](std::string_view entry) {
    const auto parts = split(entry, ':', 3);
    if (!names_match(port.device, parts[0], pattern.exact)) return false;
    return parts.size() < 2 ||
           parse_decimal(trimmed(parts[1])) == static_cast<std::uint32_t>(port.port);
  };
  const bool any = pattern.entries.empty() ||
                   std::any_of(pattern.entries.begin(), pattern.entries.end(), matches);
  return any != pattern.excludes;
}

// Returns each interface once, in the order of the addresses.
std::vector<std::string> find_interfaces(const Node& node, std::string_view value) {
  const Pattern pattern = parse_pattern(value, kMaxNcclInterfaces);
  std::vector<std::string> found;
  for (const auto& entry : node.addresses) {
    const NetworkInterface* interface = node.interface(entry.interface);
    if (interface == nullptr || !interface->running) continue;
    if (entry.address.is_v6 && entry.address.is_loopback()) continue;
    if (!takes_interface(pattern, entry.interface)) continue;
    if (std::find(found.begin(), found.end(), entry.interface) != found.end()) continue;
    if (found.size() == kMaxNcclInterfaces) break;
    found.push_back(entry.interface);
  }
  return found;
}

}  // namespace

std::optional<long long> nccl_number(const std::string& text) {
  char* end = nullptr;
  const long long number = std::strtoll(text.c_str(), &end, 0);
  return end == text.c_str() ? std::nullopt : std::optional(number);
}

bool is_on_for_nccl(const std::string& text) {
  return nccl_number(text).value_or(0) != 0;
}

bool sends_over_sockets(std::string net, bool has_rdma) {
  for (char& c : net) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return net == "socket" || (!has_rdma && (net.empty() || net == "ib"));
}

bool speaks_verbs(const InfinibandPort& port) noexcept {
  return port.link_layer == "InfiniBand" || port.link_layer == "Ethernet";
}

std::vector<std::string> nccl_interfaces(const Node& node, std::string_view value) {
  if (value.size() > 1) return find_interfaces(node, value);  // "find or fail"
  for (const auto* const rule : {"ib", "^docker,lo", "docker", "lo"}) {
    auto found = find_interfaces(node, rule);
    if (!found.empty()) return found;
  }
  return {};
}

std::vector<const InfinibandPort*> nccl_ports(const Node& node, std::string_view value) {
  const Pattern pattern = parse_pattern(value, kMaxNcclPorts);
  std::vector<const InfinibandPort*> ports;
  for (const auto& port : node.ports) {
    if (!port.active() || !speaks_verbs(port) || !takes_port(pattern, port)) continue;
    if (ports.size() < kMaxNcclPorts) ports.push_back(&port);
  }
  return ports;
}

std::string_view entry_with_blank(std::string_view value) {
  for (const auto entry : parse_pattern(value, kMaxNcclPorts).entries) {
    if (entry.substr(0, entry.find(':')).find_first_of(" \t") != entry.npos) return entry;
  }
  return {};
}

std::vector<std::string_view> list_entries(std::string_view value) {
  return parse_pattern(value, kMaxNcclPorts).entries;
}

}  // namespace ddp::fabric
