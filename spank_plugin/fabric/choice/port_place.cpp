// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/choice/port_place.h"

#include <algorithm>
#include <tuple>

namespace ddp::fabric {
std::size_t bridges_to_gpus(const Node& node, std::size_t port) {
  std::size_t most = 0;
  for (const Gpu& gpu : node.gpus) {
    most = std::max(most, shared_bridges(gpu.path, node.port_paths[port]));
  }
  return most;
}

bool is_near_gpu(const Node& node, std::size_t port) {
  constexpr std::size_t kRootPort = 2;  // the root complex and one of its ports
  return bridges_to_gpus(node, port) >= kRootPort;
}

std::optional<int> distance_to_gpus(const Node& node, std::size_t port) {
  std::optional<int> least;
  for (const Gpu& gpu : node.gpus) {
    const auto distance = node.numa_distances.between(gpu.numa_node, node.ports[port].numa_node);
    if (distance && (!least || *distance < *least)) least = distance;
  }
  return least;
}

bool is_farther(const Node& node, std::size_t port, std::size_t other) {
  const std::size_t bridges = bridges_to_gpus(node, port);
  const std::size_t others_bridges = bridges_to_gpus(node, other);
  if (bridges != others_bridges) return bridges < others_bridges;
  const auto distance = distance_to_gpus(node, port);
  const auto others_distance = distance_to_gpus(node, other);
  return distance && others_distance && *distance > *others_distance;
}

bool leads_outside(const Node& node, const InfinibandPort& port) {
  return std::any_of(port.gids.begin(), port.gids.end(), [&](const Gid& gid) {
    return std::any_of(node.routes.begin(), node.routes.end(), [&](const Route& route) {
      return route.prefix_bits == 0 && route.interface == gid.net_device;
    });
  });
}

bool are_of_one_kind(const Node& node, std::size_t a, std::size_t b) {
  const auto kind = [&node](std::size_t index) {
    const InfinibandPort& port = node.ports[index];
    const bool is_near = is_near_gpu(node, index);
    return std::make_tuple(port.link_layer, port.driver, port.board,
                           !port.physical_function.empty(), is_near,
                           !is_near && leads_outside(node, port));
  };
  return kind(a) == kind(b);
}

}  // namespace ddp::fabric
