// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/compute_ports.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "spank_plugin/fabric/nccl_choice.h"

namespace ddp::fabric {
namespace {

struct Group {
  std::string link_layer;
  double rate = 0.0;               // Gb/s, 0 if unknown
  bool has_default_route = false;  // the ports are bonds with the default route
  bool leads_outside = false;      // any of its interfaces has the default route
  std::vector<std::size_t> ports;
  std::size_t near_gpu = 0;  // number of ports near a GPU
  // Number of ports near a GPU by NUMA distance; counted only if no port of the node is near a GPU
  // in the PCI tree.
  std::size_t near_by_numa = 0;
  std::size_t far_by_numa = 0;

  bool all_near() const { return near_gpu == ports.size(); }
};

// True if the port and a GPU are below one root port.
bool is_near_gpu(const Node& node, std::size_t port) {
  constexpr std::size_t kRootPort = 2;  // the root complex and one of its ports
  return std::any_of(node.gpus.begin(), node.gpus.end(), [&](const Gpu& gpu) {
    return shared_bridges(gpu.path, node.port_paths[port]) >= kRootPort;
  });
}

// The distance from the port to the nearest GPU; nullopt if unknown.
std::optional<int> distance_to_gpus(const Node& node, std::size_t port) {
  std::optional<int> least;
  for (const Gpu& gpu : node.gpus) {
    const auto distance = node.numa_distances.between(gpu.numa_node, node.ports[port].numa_node);
    if (distance && (!least || *distance < *least)) least = distance;
  }
  return least;
}

// Counts near ports on machines where no port shares a root port with a GPU, such as GB200 and many
// virtual machines.
void count_by_numa(const Node& node, std::vector<Group>& groups) {
  std::optional<int> least;
  for (const Group& group : groups) {
    if (group.near_gpu > 0) return;
    for (const std::size_t port : group.ports) {
      const auto distance = distance_to_gpus(node, port);
      if (distance && (!least || *distance < *least)) least = distance;
    }
  }
  for (Group& group : groups) {
    for (const std::size_t port : group.ports) {
      const auto distance = distance_to_gpus(node, port);
      if (distance) ++(*distance == *least ? group.near_by_numa : group.far_by_numa);
    }
  }
}

bool leads_outside(const Node& node, const InfinibandPort& port) {
  return std::any_of(port.gids.begin(), port.gids.end(), [&](const Gid& gid) {
    return std::any_of(node.routes.begin(), node.routes.end(), [&](const Route& route) {
      return route.prefix_bits == 0 && route.interface == gid.net_device;
    });
  });
}

bool is_bond_with_default_route(const Node& node, const InfinibandPort& port) {
  return port.device.find("bond") != std::string::npos && leads_outside(node, port);
}

std::vector<Group> group_ports(const Node& node) {
  std::vector<Group> groups;
  for (const InfinibandPort* port : nccl_ports(node, "")) {
    const auto index = static_cast<std::size_t>(port - node.ports.data());
    const double rate = port->rate_gbps.value_or(0.0);
    const bool is_default = is_bond_with_default_route(node, *port);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.link_layer == port->link_layer && !(g.rate < rate || g.rate > rate) &&
             g.has_default_route == is_default;
    });
    if (group == groups.end()) {
      group = groups.insert(groups.end(),
                            Group{port->link_layer, rate, is_default, false, {}, 0, 0, 0});
    }
    group->ports.push_back(index);
    group->leads_outside = group->leads_outside || leads_outside(node, *port);
    if (is_near_gpu(node, index)) ++group->near_gpu;
  }
  count_by_numa(node, groups);
  return groups;
}

auto rank_of(const Group& group) {
  return std::make_tuple(!group.has_default_route, group.near_gpu > 0,
                         group.rate * static_cast<double>(group.ports.size()),
                         group.link_layer == "InfiniBand");
}

// Returns the reason why a group is not part of the compute fabric; empty if it is part of it.
std::string reason_against(const Group& group, const Group& compute, bool has_gpus) {
  if (group.link_layer != compute.link_layer) {
    return group.link_layer + " beside " + compute.link_layer;
  }
  if (group.has_default_route && !compute.has_default_route) return "bond with the default route";
  if (group.rate > 0.0 && group.rate * 2 < compute.rate) return "less than half the rate";
  // On nodes with a RoCE compute fabric, a DPU for storage and external traffic often has exactly
  // half the rate.
  const bool is_like_dpu = group.link_layer == "Ethernet" && has_gpus && group.near_gpu == 0;
  if (is_like_dpu && group.rate > 0.0 && group.rate * 2 <= compute.rate) {
    return "half the rate, and not near a GPU";
  }
  if (group.rate > 0.0 && group.rate < compute.rate && group.near_gpu == 0 && group.leads_outside &&
      !compute.leads_outside) {
    return "slower, and with the default route";
  }
  if (group.near_gpu == 0 && compute.all_near()) return "far from every GPU";
  if (group.far_by_numa == group.ports.size() && compute.near_by_numa == compute.ports.size()) {
    return "on a NUMA node farther from every GPU";
  }
  return {};
}

}  // namespace

ComputePorts choose_compute_ports(const Node& node) {
  const auto groups = group_ports(node);
  if (groups.empty()) return {};
  const Group& compute =
      *std::max_element(groups.begin(), groups.end(),
                        [](const Group& a, const Group& b) { return rank_of(a) < rank_of(b); });
  ComputePorts chosen;
  for (const Group& group : groups) {
    const std::string reason = reason_against(group, compute, !node.gpus.empty());
    for (const std::size_t port : group.ports) {
      if (reason.empty()) {
        chosen.ports.push_back(port);
      } else {
        chosen.left_out.push_back(name_of(node.ports[port]) + " (" + reason + ")");
      }
    }
  }
  // Sort in PCI order, which is the order of the rails on any node, whatever the device names.
  std::sort(chosen.ports.begin(), chosen.ports.end(), [&node](std::size_t a, std::size_t b) {
    return std::tie(node.ports[a].bus_address, a) < std::tie(node.ports[b].bus_address, b);
  });
  return chosen;
}

std::string exact_port_list(const Node& node, const std::vector<std::size_t>& ports) {
  std::string list = "=";
  for (const std::size_t port : ports) {
    if (list.size() > 1) list += ',';
    list += name_of(node.ports[port]);
  }
  return list;
}

}  // namespace ddp::fabric
