// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/choice/port_groups.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "spank_plugin/fabric/choice/port_place.h"

namespace ddp::fabric {
namespace {

// A port, with what its place tells about its purpose.
struct Facts {
  std::size_t port = 0;
  double rate = 0.0;  // Gb/s, 0 if unknown
  std::size_t bridges = 0;
  bool is_near = false;
  // Only if no port of the node is near a GPU in the PCI tree, as on GB200 and on many virtual
  // machines. Both are false if the NUMA node is unknown.
  bool is_near_by_numa = false;
  bool is_far_by_numa = false;
  bool leads_outside = false;
  bool is_bond_with_default_route = false;
};

using FactsOfPorts = std::vector<Facts>;

// Ports of one link layer and rate.
struct Group {
  std::string link_layer;
  double rate = 0.0;
  bool is_bond_with_default_route = false;
  FactsOfPorts ports;

  bool all(bool Facts::*fact) const {
    return std::all_of(ports.begin(), ports.end(), [fact](const Facts& p) { return p.*fact; });
  }
  bool any(bool Facts::*fact) const {
    return std::any_of(ports.begin(), ports.end(), [fact](const Facts& p) { return p.*fact; });
  }
  std::size_t most_bridges() const {
    return std::max_element(ports.begin(), ports.end(),
                            [](const Facts& a, const Facts& b) { return a.bridges < b.bridges; })
        ->bridges;
  }
};

void measure_by_numa(const Node& node, FactsOfPorts& ports) {
  std::optional<int> least;
  for (const Facts& facts : ports) {
    if (facts.is_near) return;
    const auto distance = distance_to_gpus(node, facts.port);
    if (distance && (!least || *distance < *least)) least = distance;
  }
  for (Facts& facts : ports) {
    const auto distance = distance_to_gpus(node, facts.port);
    if (distance) (*distance == *least ? facts.is_near_by_numa : facts.is_far_by_numa) = true;
  }
}

FactsOfPorts facts_of(const Node& node, const std::vector<std::size_t>& indices) {
  FactsOfPorts ports;
  for (const std::size_t index : indices) {
    const InfinibandPort& port = node.ports[index];
    Facts& facts = ports.emplace_back();
    facts.port = index;
    facts.rate = port.rate_gbps.value_or(0.0);
    facts.bridges = bridges_to_gpus(node, index);
    facts.is_near = is_near_gpu(node, index);
    facts.leads_outside = leads_outside(node, port);
    facts.is_bond_with_default_route =
        facts.leads_outside && port.device.find("bond") != std::string::npos;
  }
  measure_by_numa(node, ports);
  return ports;
}

std::vector<Group> group_ports(const Node& node, const FactsOfPorts& ports) {
  std::vector<Group> groups;
  for (const Facts& facts : ports) {
    const std::string& link_layer = node.ports[facts.port].link_layer;
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.link_layer == link_layer && !(g.rate < facts.rate || g.rate > facts.rate) &&
             g.is_bond_with_default_route == facts.is_bond_with_default_route;
    });
    if (group == groups.end()) {
      group = groups.insert(groups.end(),
                            Group{link_layer, facts.rate, facts.is_bond_with_default_route, {}});
    }
    group->ports.push_back(facts);
  }
  return groups;
}

auto rank_of(const Group& group) {
  return std::make_tuple(!group.is_bond_with_default_route, group.any(&Facts::is_near),
                         group.rate * static_cast<double>(group.ports.size()),
                         group.link_layer == "InfiniBand");
}

using Reason = std::optional<std::pair<LeftOutBy, std::string>>;

Reason reason_of_rate(const Facts& port, const Group& compute, bool has_gpus) {
  if (!(port.rate > 0.0 && port.rate < compute.rate)) return std::nullopt;
  if (port.rate * 2 < compute.rate) {
    return Reason({LeftOutBy::rate, "less than half the rate"});
  }
  // On nodes with a RoCE compute fabric, a DPU for storage and external traffic often has exactly
  // half the rate.
  const bool is_half = port.rate * 2 <= compute.rate;
  if (compute.link_layer == "Ethernet" && is_half && has_gpus && !port.is_near) {
    return Reason({LeftOutBy::rate, "half the rate, and not near a GPU"});
  }
  if (!port.is_near && port.leads_outside && !compute.any(&Facts::leads_outside)) {
    return Reason({LeftOutBy::route, "slower, and with the default route"});
  }
  return std::nullopt;
}

// Returns nullopt if the port is part of the compute fabric. A bond with the default route that is
// as near to a GPU as the other bonds is one of them: without it, that GPU would lose its port.
Reason reason_against(const Facts& port, const Group& compute, bool has_gpus) {
  const bool is_farther = port.bridges == 0 || port.bridges < compute.most_bridges();
  if (port.is_bond_with_default_route && !compute.is_bond_with_default_route && is_farther) {
    return Reason({LeftOutBy::route, "bond with the default route"});
  }
  if (auto reason = reason_of_rate(port, compute, has_gpus)) return reason;
  if (!port.is_near && compute.all(&Facts::is_near)) {
    return Reason({LeftOutBy::place, "far from every GPU"});
  }
  if (port.is_far_by_numa && compute.all(&Facts::is_near_by_numa)) {
    return Reason({LeftOutBy::place, "on a NUMA node farther from every GPU"});
  }
  return std::nullopt;
}

}  // namespace

void leave_out_other_fabrics(const Node& node, ComputePorts& chosen) {
  const auto groups = group_ports(node, facts_of(node, chosen.ports));
  if (groups.empty()) return;
  const Group& compute =
      *std::max_element(groups.begin(), groups.end(),
                        [](const Group& a, const Group& b) { return rank_of(a) < rank_of(b); });
  chosen.ports.clear();
  for (const Group& group : groups) {
    for (const Facts& port : group.ports) {
      Reason reason;
      if (group.link_layer != compute.link_layer) {
        reason = {LeftOutBy::link_layer, group.link_layer + " beside " + compute.link_layer};
      } else {
        reason = reason_against(port, compute, !node.gpus.empty());
      }
      if (reason) {
        chosen.left_out.push_back({port.port, reason->first, reason->second});
      } else {
        chosen.ports.push_back(port.port);
      }
    }
  }
}

}  // namespace ddp::fabric
