// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/data_interfaces.h"

#include <algorithm>

#include "ddp_runtime/check/node/infiniband_kind.h"

namespace ddp::check {
namespace {

using fabric::ComputePorts;
using fabric::InterfaceKind;
using fabric::NetworkInterface;
using fabric::Node;
using Names = std::set<std::string>;

// Returns the running physical interfaces that meet the condition.
template <typename Condition>
Names names_where(const Node& node, Condition condition) {
  Names names;
  for (const auto& interface : node.interfaces) {
    if (is_on_a_wire(interface) && interface.running && condition(interface)) {
      names.insert(interface.name);
    }
  }
  return names;
}

Names below(const Node& node, const Names& named) {
  Names all = named;
  for (const auto& interface : node.interfaces) {
    if (named.contains(interface.name) && !interface.lower.empty()) all.insert(interface.lower);
  }
  return names_where(node, [&all](const NetworkInterface& interface) {
    return all.contains(interface.name) || all.contains(interface.master);
  });
}

// Returns the interfaces of the addresses of the compute fabric's RoCE ports, such as bonds.
Names interfaces_of_gids(const Node& node, const ComputePorts& compute) {
  Names names;
  for (const std::size_t port : compute.ports) {
    for (const auto& gid : node.ports[port].gids) {
      if (!gid.net_device.empty()) names.insert(gid.net_device);
    }
  }
  return names;
}

bool is_on_bus_of(const Node& node, const ComputePorts& compute,
                  const NetworkInterface& interface) {
  return !interface.bus_address.empty() &&
         std::any_of(compute.ports.begin(), compute.ports.end(), [&](std::size_t port) {
           return node.ports[port].bus_address == interface.bus_address;
         });
}

Names of_rdma_ports(const Node& node, const ComputePorts& compute) {
  Names names = below(node, interfaces_of_gids(node, compute));
  names.merge(names_where(node, [&](const NetworkInterface& interface) {
    return is_on_bus_of(node, compute, interface) || is_of_a_rail(node, compute, interface);
  }));
  return names;
}

Names fastest(const Node& node) {
  int most = 0;
  const auto is_wired = [](const NetworkInterface& interface) { return !interface.wireless; };
  for (const auto& interface : node.interfaces) {
    if (is_on_a_wire(interface) && interface.running && is_wired(interface)) {
      most = std::max(most, interface.speed_mbps.value_or(0));
    }
  }
  return names_where(node, [&](const NetworkInterface& interface) {
    const int speed = interface.speed_mbps.value_or(0);
    return is_wired(interface) && speed >= most - speed;
  });
}

}  // namespace

bool is_on_a_wire(const NetworkInterface& interface) {
  return interface.kind == InterfaceKind::physical || interface.kind == InterfaceKind::ipoib;
}

// Link-local and multicast routes exist on every IPv6 interface.
bool is_in_use(const Node& node, const NetworkInterface& interface) {
  return !interface.master.empty() ||
         std::any_of(node.routes.begin(), node.routes.end(), [&](const fabric::Route& route) {
           const bool is_multicast = route.network.is_v6 && route.network.bytes[0] == 0xff;
           return route.interface == interface.name && !is_multicast &&
                  !route.network.is_link_local();
         });
}

bool is_of_a_rail(const Node& node, const ComputePorts& compute,
                  const NetworkInterface& interface) {
  if (interface.bus_address.empty()) return false;
  for (std::size_t port = 0; port < node.ports.size(); ++port) {
    if (node.ports[port].link_layer == "Ethernet" &&
        node.ports[port].bus_address == interface.bus_address && is_rail(node, compute, port)) {
      return true;
    }
  }
  return false;
}

Names find_data_interfaces(const Node& node, const ComputePorts& compute,
                           const std::vector<std::string>& named) {
  if (!named.empty()) return below(node, Names(named.begin(), named.end()));
  Names names = of_rdma_ports(node, compute);
  return names.empty() ? fastest(node) : names;
}

}  // namespace ddp::check
