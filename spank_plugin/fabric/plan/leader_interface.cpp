// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/leader_interface.h"

#include <algorithm>
#include <utility>

#include "spank_plugin/fabric/choice/candidate.h"

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
  std::erase_if(addresses, [](const auto& a) { return a.is_local(); });
  return addresses;
}

// Libraries use only running interfaces: a docker0 without containers has an address, but no link.
bool is_running(const Node& node, const std::string& name) {
  const NetworkInterface* interface = node.interface(name);
  return interface != nullptr && interface->running;
}

Found from_site(const Node& node, PlanBuilder& builder) {
  if (!node.site.interface) return std::nullopt;
  const std::string problem = what_is_wrong_with(node, *node.site.interface);
  if (problem.empty()) {
    return LeaderInterface{*node.site.interface, "is the site's choice", node.site.path};
  }
  builder.warn_of_node(node.site.path + " asks for interface " + *node.site.interface + ", which " +
                       problem);
  return std::nullopt;
}

Found from_kernel(const Node& node, const Request& request) {
  if (!request.source_address) return std::nullopt;
  const auto address = parse_ip_address(*request.source_address);
  if (!address || address->is_local()) return std::nullopt;
  const std::string name = interface_with(node.addresses, *address);
  if (!is_running(node, name)) return std::nullopt;
  return LeaderInterface{name, "has the address that the kernel uses to reach MASTER_ADDR",
                         "a connected socket"};
}

Found with_own_address(const Node& node, const std::vector<IpAddress>& leader) {
  for (const auto& address : leader) {
    const std::string name = interface_with(node.addresses, address);
    if (is_running(node, name)) {
      return LeaderInterface{name, "has MASTER_ADDR's address: this is the leader", kAddresses};
    }
  }
  return std::nullopt;
}

// True for lo and dummy interfaces, which carry no packets to other nodes, but may have the address
// of a host behind links without addresses of their own (BGP to the host).
bool may_have_the_hosts_address(const Node& node, const InterfaceAddress& entry) {
  const NetworkInterface* interface = node.interface(entry.interface);
  return interface != nullptr && entry.is_of_host_only() && !entry.address.is_local() &&
         (interface->kind == InterfaceKind::loopback || interface->kind == InterfaceKind::other);
}

// Returns the interface whose address is the source of packets on this route, as the kernel chooses
// it: the route's own, or the one with the host's address if the route's own does not have one.
Found source_of(const Node& node, const Route& route, const std::string& rule) {
  const bool is_v6 = route.network.is_v6;
  if (!is_running(node, route.interface)) return std::nullopt;
  if (has_address(node.addresses, route.interface, is_v6)) {
    return LeaderInterface{route.interface, rule, kRoutes};
  }
  for (const auto& entry : node.addresses) {
    if (entry.address.is_v6 == is_v6 && may_have_the_hosts_address(node, entry)) {
      return LeaderInterface{entry.interface, "has the host's address", kAddresses};
    }
  }
  return std::nullopt;
}

// A network that the node belongs to takes precedence over the default route, in any order of the
// targets.
Found by_route(const Node& node, const std::vector<IpAddress>& targets, const std::string& rule) {
  Found by_default;
  for (const auto& address : targets) {
    const Route* route = find_route(node.routes, address);
    Found found = route == nullptr ? std::nullopt : source_of(node, *route, rule);
    if (found && route->prefix_bits > 0) return found;
    if (!by_default) by_default = std::move(found);
  }
  return by_default;
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
    if (route.prefix_bits == 0 && interface != nullptr && is_candidate(*interface) &&
        has_address(node.addresses, route.interface, route.network.is_v6)) {
      return LeaderInterface{route.interface, "has the default route", kRoutes};
    }
  }
  return std::nullopt;
}

// Does not warn of a veth, which is the network connection of a container, or of a dummy interface
// with the host's address, which carries no packets.
void warn_of_trap(const Node& node, const std::string& name, PlanBuilder& builder) {
  const NetworkInterface* interface = node.interface(name);
  if (interface == nullptr || !is_trap(*interface) || interface->kind == InterfaceKind::veth)
    return;
  if (std::any_of(node.addresses.begin(), node.addresses.end(), [&](const auto& entry) {
        return entry.interface == name && may_have_the_hosts_address(node, entry);
      })) {
    return;
  }
  const std::string kind =
      interface->wireless ? std::string("wireless") : std::string(name_of(interface->kind));
  builder.warn("MASTER_ADDR is reached through " + name + " (" + kind +
               "), and all bootstrap traffic will take that route; set MASTER_ADDR to an "
               "address on the cluster's network if there is one");
}

// True if the kernel and its main table have no way to any address of the leader.
bool is_cut_off(const Node& node, const Request& request, const std::vector<IpAddress>& leader) {
  return !leader.empty() && !request.source_address &&
         std::none_of(leader.begin(), leader.end(), [&node](const auto& address) {
           return find_route(node.routes, address) != nullptr ||
                  !interface_with(node.addresses, address).empty();
         });
}

// Without any network, the launch plan has a note.
void warn_of_no_way(const Node& node, const Request& request, const std::vector<IpAddress>& leader,
                    PlanBuilder& builder) {
  const auto reaches_others = [](const auto& each) { return !each.address.is_loopback(); };
  if (std::none_of(node.addresses.begin(), node.addresses.end(), reaches_others)) return;
  if (leader.empty() || request.source_address) {
    builder.warn(
        "the interface that reaches MASTER_ADDR is unknown on this node, so NCCL and Gloo choose "
        "one themselves");
    return;
  }
  const Route* route = find_route(node.routes, leader.front());
  const std::string address = "MASTER_ADDR (" + to_string(leader.front()) + " on this node)";
  builder.warn_of_node(
      (route == nullptr ? "there is no route to " + address
                        : "the route to " + address + " leads through " + route->interface +
                              ", which is not running or has no address") +
      ", so the ranks here cannot reach rank 0; give an address that all nodes reach with "
      "--ddp=master_addr=ADDRESS, or repair this node's network");
}

}  // namespace

std::optional<LeaderInterface> find_leader_interface(const Node& node, const Request& request,
                                                     PlanBuilder& builder) {
  const auto all = parse_addresses(request.leader_addresses);
  const auto leader = without_local_ones(all);
  Found found = from_site(node, builder);
  if (!found) found = from_kernel(node, request);
  if (!found) found = with_own_address(node, leader);
  if (!found) found = by_route(node, leader, "has the route to MASTER_ADDR");
  if (!found) {
    found = by_route(node, without_local_ones(parse_addresses(request.peer_addresses)),
                     "has the route to another node of the step");
  }
  if (!found && all.empty()) found = without_leader(node);
  if (found) warn_of_trap(node, found->name, builder);
  if (!found || is_cut_off(node, request, leader)) {
    warn_of_no_way(node, request, leader, builder);
  }
  return found;
}

}  // namespace ddp::fabric
