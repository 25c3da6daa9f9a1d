// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/port_groups.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "spank_plugin/fabric/port_place.h"

namespace ddp::fabric {
namespace {

struct Group {
  std::string link_layer;
  double rate = 0.0;  // Gb/s, 0 if unknown
  bool is_bond_with_default_route = false;
  bool leads_outside = false;  // any of its interfaces has the default route
  std::vector<std::size_t> ports;
  std::size_t near_gpu = 0;      // number of ports near a GPU
  std::size_t most_bridges = 0;  // that a port shares with a GPU
  // Number of ports near a GPU by NUMA distance; counted only if no port of the node is near a GPU
  // in the PCI tree.
  std::size_t near_by_numa = 0;
  std::size_t far_by_numa = 0;

  bool all_near() const { return near_gpu == ports.size(); }
};

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

bool is_bond_with_default_route(const Node& node, const InfinibandPort& port) {
  return port.device.find("bond") != std::string::npos && leads_outside(node, port);
}

Group& group_of(std::vector<Group>& groups, const Node& node, const InfinibandPort& port) {
  const double rate = port.rate_gbps.value_or(0.0);
  const bool is_bond = is_bond_with_default_route(node, port);
  const auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
    return g.link_layer == port.link_layer && !(g.rate < rate || g.rate > rate) &&
           g.is_bond_with_default_route == is_bond;
  });
  if (group != groups.end()) return *group;
  Group added;
  added.link_layer = port.link_layer;
  added.rate = rate;
  added.is_bond_with_default_route = is_bond;
  return groups.emplace_back(std::move(added));
}

std::vector<Group> group_ports(const Node& node, const std::vector<std::size_t>& ports) {
  std::vector<Group> groups;
  for (const std::size_t index : ports) {
    const InfinibandPort& port = node.ports[index];
    Group& group = group_of(groups, node, port);
    group.ports.push_back(index);
    group.leads_outside = group.leads_outside || leads_outside(node, port);
    group.most_bridges = std::max(group.most_bridges, bridges_to_gpus(node, index));
    if (is_near_gpu(node, index)) ++group.near_gpu;
  }
  count_by_numa(node, groups);
  return groups;
}

auto rank_of(const Group& group) {
  return std::make_tuple(!group.is_bond_with_default_route, group.near_gpu > 0,
                         group.rate * static_cast<double>(group.ports.size()),
                         group.link_layer == "InfiniBand");
}

using Reason = std::optional<std::pair<LeftOutBy, std::string>>;

// On nodes with a RoCE compute fabric, a DPU for storage and external traffic often has exactly
// half the rate.
bool is_like_dpu(const Group& group, const Group& compute) {
  return group.link_layer == "Ethernet" && group.near_gpu == 0 && group.rate * 2 <= compute.rate;
}

Reason reason_of_rate(const Group& group, const Group& compute, bool has_gpus) {
  if (!(group.rate > 0.0 && group.rate < compute.rate)) return std::nullopt;
  if (group.rate * 2 < compute.rate) {
    return Reason({LeftOutBy::rate, "less than half the rate"});
  }
  if (has_gpus && is_like_dpu(group, compute)) {
    return Reason({LeftOutBy::rate, "half the rate, and not near a GPU"});
  }
  if (group.near_gpu == 0 && group.leads_outside && !compute.leads_outside) {
    return Reason({LeftOutBy::route, "slower, and with the default route"});
  }
  return std::nullopt;
}

Reason reason_of_place(const Group& group, const Group& compute) {
  if (group.near_gpu == 0 && compute.all_near()) {
    return Reason({LeftOutBy::place, "far from every GPU"});
  }
  if (group.far_by_numa == group.ports.size() && compute.near_by_numa == compute.ports.size()) {
    return Reason({LeftOutBy::place, "on a NUMA node farther from every GPU"});
  }
  return std::nullopt;
}

// Returns nullopt if the group is part of the compute fabric. A bond with the default route that is
// as near to a GPU as the other bonds is one of them: without it, that GPU would lose its port.
Reason reason_against(const Group& group, const Group& compute, bool has_gpus) {
  if (group.link_layer != compute.link_layer) {
    return Reason({LeftOutBy::link_layer, group.link_layer + " beside " + compute.link_layer});
  }
  const bool is_far = group.most_bridges == 0 || group.most_bridges < compute.most_bridges;
  if (group.is_bond_with_default_route && !compute.is_bond_with_default_route && is_far) {
    return Reason({LeftOutBy::route, "bond with the default route"});
  }
  if (auto reason = reason_of_rate(group, compute, has_gpus)) return reason;
  return reason_of_place(group, compute);
}

}  // namespace

void leave_out_other_fabrics(const Node& node, ComputePorts& chosen) {
  const auto groups = group_ports(node, chosen.ports);
  if (groups.empty()) return;
  const Group& compute =
      *std::max_element(groups.begin(), groups.end(),
                        [](const Group& a, const Group& b) { return rank_of(a) < rank_of(b); });
  chosen.ports.clear();
  for (const Group& group : groups) {
    const Reason reason = reason_against(group, compute, !node.gpus.empty());
    for (const std::size_t port : group.ports) {
      if (reason) {
        chosen.left_out.push_back({port, reason->first, reason->second});
      } else {
        chosen.ports.push_back(port);
      }
    }
  }
}

}  // namespace ddp::fabric
