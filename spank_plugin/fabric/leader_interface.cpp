// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/leader_interface.h"

#include <algorithm>
#include <iterator>

#include "spank_plugin/fabric/candidate.h"

namespace ddp::fabric {
namespace {

using Found = std::optional<LeaderInterface>;

constexpr const char* kRoutes = "/proc/net/route";
constexpr const char* kAddresses = "the interfaces' addresses";

std::vector<IpAddress> parse_addresses(const std::vector<std::string>& texts) {
  std::vector<IpAddress> addresses;
  for (const auto& text : texts) {
    if (const auto address = parse_ip_address(text)) addresses.push_back(*address);
  }
  return addresses;
}

// Returns the addresses that other nodes can reach.
std::vector<IpAddress> without_local_ones(std::vector<IpAddress> addresses) {
  std::erase_if(addresses, [](const auto& a) { return a.is_loopback() || a.is_link_local(); });
  return addresses;
}

// Libraries use only running interfaces: a docker0 without containers has an address, but no link.
bool is_usable(const Node& node, const std::string& name) {
  const NetworkInterface* interface = node.interface(name);
  return interface != nullptr && interface->running && interface->kind != InterfaceKind::loopback;
}

Found from_site(const Node& node, std::vector<std::string>& warnings) {
  if (!node.site.interface) return std::nullopt;
  const NetworkInterface* interface = node.interface(*node.site.interface);
  if (interface == nullptr || !interface->running) {
    warnings.push_back(node.site.path + " asks for interface " + *node.site.interface + ", which " +
                       (interface == nullptr ? "this node does not have" : "is not running here"));
    return std::nullopt;
  }
  return LeaderInterface{interface->name, "is the site's choice", node.site.path};
}

Found from_kernel(const Node& node, const Request& request) {
  if (!request.source_address) return std::nullopt;
  const auto address = parse_ip_address(*request.source_address);
  if (!address || address->is_loopback()) return std::nullopt;
  const std::string name = interface_with(node.addresses, *address);
  if (!is_usable(node, name)) return std::nullopt;
  return LeaderInterface{name, "has the address that the kernel uses to reach MASTER_ADDR",
                         "a connected socket"};
}

Found with_own_address(const Node& node, const std::vector<IpAddress>& leader) {
  for (const auto& address : leader) {
    const std::string name = interface_with(node.addresses, address);
    if (is_usable(node, name)) {
      return LeaderInterface{name, "has MASTER_ADDR's address: this is the leader", kAddresses};
    }
  }
  return std::nullopt;
}

// A network that the node belongs to takes precedence over the default route, in any order of the
// targets.
Found by_route(const Node& node, const std::vector<IpAddress>& targets, const std::string& rule) {
  const Route* by_default = nullptr;
  for (const auto& address : targets) {
    const Route* route = find_route(node.routes, address);
    if (route == nullptr || !is_usable(node, route->interface)) continue;
    if (route->prefix_bits > 0) return LeaderInterface{route->interface, rule, kRoutes};
    if (by_default == nullptr) by_default = route;
  }
  if (by_default == nullptr) return std::nullopt;
  return LeaderInterface{by_default->interface, rule, kRoutes};
}

// Used if the address of MASTER_ADDR is unknown. Returns the only interface that can carry traffic,
// or the interface with the default route if that one can.
Found without_leader(const Node& node) {
  std::vector<const NetworkInterface*> candidates;
  for (const auto& interface : node.interfaces) {
    if (is_candidate(interface) && address_of(node.addresses, interface.name)) {
      candidates.push_back(&interface);
    }
  }
  if (candidates.size() == 1) {
    return LeaderInterface{candidates.front()->name, "is the only one on a network", kAddresses};
  }
  for (const auto& route : node.routes) {
    const NetworkInterface* interface = node.interface(route.interface);
    if (route.prefix_bits == 0 && interface != nullptr && is_candidate(*interface)) {
      return LeaderInterface{route.interface, "has the default route", kRoutes};
    }
  }
  return std::nullopt;
}

// Does not warn of a veth, which is the network connection of a container.
void warn_of_trap(const Node& node, const std::string& name, std::vector<std::string>& warnings) {
  const NetworkInterface* interface = node.interface(name);
  if (interface == nullptr || !is_trap(*interface) || interface->kind == InterfaceKind::veth)
    return;
  const std::string kind =
      interface->wireless ? std::string("wireless") : std::string(name_of(interface->kind));
  warnings.push_back("MASTER_ADDR is reached through " + name + " (" + kind +
                     "), and all bootstrap traffic will take that route; set MASTER_ADDR to an "
                     "address on the cluster's network if there is one");
}

}  // namespace

std::optional<LeaderInterface> find_leader_interface(const Node& node, const Request& request,
                                                     std::vector<std::string>& warnings) {
  const auto all = parse_addresses(request.leader_addresses);
  const auto leader = without_local_ones(all);
  Found found = from_site(node, warnings);
  if (!found) found = from_kernel(node, request);
  if (!found) found = with_own_address(node, leader);
  if (!found) found = by_route(node, leader, "has the route to MASTER_ADDR");
  if (!found) {
    found = by_route(node, without_local_ones(parse_addresses(request.peer_addresses)),
                     "has the route to another node of the step");
  }
  if (!found && all.empty()) found = without_leader(node);
  if (found) warn_of_trap(node, found->name, warnings);
  return found;
}

}  // namespace ddp::fabric
