// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/choice/compute_ports.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>

#include "spank_plugin/fabric/choice/nccl_choice.h"
#include "spank_plugin/fabric/choice/port_groups.h"
#include "spank_plugin/fabric/choice/port_place.h"
#include "spank_plugin/fabric/choice/roce_gid.h"

namespace ddp::fabric {
namespace {

using Ports = std::vector<std::size_t>;
using Condition = std::function<bool(std::size_t)>;

// Moves the ports that meet the condition from chosen.ports to chosen.left_out.
void leave_out(ComputePorts& chosen, LeftOutBy by, const std::string& reason,
               const Condition& condition) {
  for (const std::size_t port : chosen.ports) {
    if (condition(port)) chosen.left_out.push_back({port, by, reason});
  }
  std::erase_if(chosen.ports, condition);
}

// The same, unless no port would remain.
void prefer_others(ComputePorts& chosen, LeftOutBy by, const std::string& reason,
                   const Condition& condition) {
  if (!std::all_of(chosen.ports.begin(), chosen.ports.end(), condition)) {
    leave_out(chosen, by, reason, condition);
  }
}

// True if the kernel shows that other nodes cannot reach the port. No GID at all, beside ports that
// have some, is that of a port whose interface is in another network namespace or switches packets.
bool lacks_address(const Node& node, const InfinibandPort& port) {
  if (port.link_layer != "Ethernet" || choose_roce_gid(port, "")) return false;
  return shows_gid_types(port) ||
         (port.gids.empty() && std::any_of(node.ports.begin(), node.ports.end(), shows_gid_types));
}

void leave_out_unusable(const Node& node, ComputePorts& chosen) {
  const auto& ports = node.ports;
  for (const std::string protocol : {"iWARP", "usNIC"}) {
    leave_out(chosen, LeftOutBy::protocol, protocol + ", which NCCL cannot use",
              [&](std::size_t i) { return foreign_protocol(ports[i]) == protocol; });
  }
  // Old kernels show the bus address of the interface below.
  prefer_others(chosen, LeftOutBy::software, "a software device", [&](std::size_t i) {
    return ports[i].bus_address.empty() || !ports[i].carrier_interface.empty();
  });
  prefer_others(chosen, LeftOutBy::address, "no RoCE v2 address that other nodes can reach",
                [&](std::size_t i) { return lacks_address(node, ports[i]); });
  const Ports used = chosen.ports;
  leave_out(chosen, LeftOutBy::virtual_function, "a virtual function", [&](std::size_t i) {
    return std::any_of(used.begin(), used.end(), [&](std::size_t other) {
      return !ports[i].physical_function.empty() &&
             ports[other].bus_address == ports[i].physical_function;
    });
  });
}

// Ports as fast as the compute fabric: with the default route, and farther from the GPUs than all
// of its other ports. There must be fewer of them than of the others, so that a node with two ports
// keeps both.
void leave_out_distant_exits(const Node& node, ComputePorts& chosen) {
  Ports exits, others;
  for (const std::size_t port : chosen.ports) {
    (leads_outside(node, node.ports[port]) ? exits : others).push_back(port);
  }
  if (exits.size() >= others.size()) return;
  leave_out(chosen, LeftOutBy::route, "with the default route, and farther from the GPUs",
            [&](std::size_t port) {
              return leads_outside(node, node.ports[port]) &&
                     std::all_of(others.begin(), others.end(),
                                 [&](std::size_t other) { return is_farther(node, port, other); });
            });
}

// Keeps NCCL's limit. Ports that are equally near are used together or not at all, since the rails
// of the nodes must match; except for the nearest.
void keep_limit(const Node& node, ComputePorts& chosen) {
  if (chosen.ports.size() <= kMaxNcclPorts) return;
  const auto distance_of = [&node](std::size_t port) {
    constexpr int kUnknown = std::numeric_limits<int>::max();
    const auto bridges = static_cast<int>(bridges_to_gpus(node, port));
    return std::make_tuple(-bridges, distance_to_gpus(node, port).value_or(kUnknown));
  };
  Ports nearest = chosen.ports;
  std::stable_sort(nearest.begin(), nearest.end(),
                   [&](std::size_t a, std::size_t b) { return distance_of(a) < distance_of(b); });
  std::size_t kept = kMaxNcclPorts;
  while (kept > 0 && distance_of(nearest[kept]) == distance_of(nearest[kept - 1])) --kept;
  nearest.resize(kept > 0 ? kept : kMaxNcclPorts);
  leave_out(chosen, LeftOutBy::limit, "NCCL uses at most 32 ports, and others come first",
            [&nearest](std::size_t port) {
              return std::find(nearest.begin(), nearest.end(), port) == nearest.end();
            });
}

// Names the ports that the facts do not exclude but that look like those of another fabric.
void name_doubtful(const Node& node, ComputePorts& chosen) {
  const auto is_near = [&node](std::size_t port) { return is_near_gpu(node, port); };
  const auto near =
      static_cast<std::size_t>(std::count_if(chosen.ports.begin(), chosen.ports.end(), is_near));
  const bool most_are_near = 2 * near > chosen.ports.size();
  for (const std::size_t port : chosen.ports) {
    if (chosen.ports.size() > 1 && leads_outside(node, node.ports[port])) {
      chosen.doubtful.push_back({port, LeftOutBy::route, "with the default route"});
    } else if (most_are_near && !is_near(port)) {
      chosen.doubtful.push_back({port, LeftOutBy::place, "far from every GPU"});
    }
  }
}

// Sorts in PCI order, which is the order of the rails on any node, whatever the device names.
void sort_by_bus(const Node& node, Ports& ports) {
  std::sort(ports.begin(), ports.end(), [&node](std::size_t a, std::size_t b) {
    return std::tie(node.ports[a].bus_address, a) < std::tie(node.ports[b].bus_address, b);
  });
}

}  // namespace

bool ComputePorts::contains(std::size_t port) const noexcept {
  return std::find(ports.begin(), ports.end(), port) != ports.end();
}

const LeftOutPort* ComputePorts::find_left_out(std::size_t port) const noexcept {
  const auto found = std::find_if(left_out.begin(), left_out.end(),
                                  [port](const LeftOutPort& entry) { return entry.port == port; });
  return found == left_out.end() ? nullptr : &*found;
}

ComputePorts choose_compute_ports(const Node& node) {
  ComputePorts chosen;
  for (std::size_t i = 0; i < node.ports.size(); ++i) {
    if (node.ports[i].active() && speaks_verbs(node.ports[i])) chosen.ports.push_back(i);
  }
  sort_by_bus(node, chosen.ports);
  Ports sites;
  if (node.site.ib_hca) {
    for (const InfinibandPort* port : nccl_ports(node, "=" + *node.site.ib_hca)) {
      sites.push_back(static_cast<std::size_t>(port - node.ports.data()));
    }
  }
  if (!sites.empty()) {
    leave_out(chosen, LeftOutBy::site, "not in " + node.site.path, [&sites](std::size_t port) {
      return std::find(sites.begin(), sites.end(), port) == sites.end();
    });
    return chosen;
  }
  leave_out_unusable(node, chosen);
  leave_out_other_fabrics(node, chosen);
  leave_out_distant_exits(node, chosen);
  keep_limit(node, chosen);
  sort_by_bus(node, chosen.ports);
  name_doubtful(node, chosen);
  return chosen;
}

std::string exact_port_list(const Node& node, const Ports& ports) {
  std::string list = "=";
  for (const std::size_t port : ports) {
    if (list.size() > 1) list += ',';
    list += name_of(node.ports[port]);
  }
  return list;
}

}  // namespace ddp::fabric
