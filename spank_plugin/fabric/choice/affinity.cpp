// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/choice/affinity.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/text.h"

namespace ddp::fabric {
namespace {

// Returns a key that is larger for nearer ports.
auto nearness(const Node& node, const Gpu& gpu, std::size_t port) {
  constexpr int kUnknown = std::numeric_limits<int>::max();
  const auto distance = node.numa_distances.between(gpu.numa_node, node.ports[port].numa_node);
  return std::make_tuple(shared_bridges(gpu.path, node.port_paths[port]),
                         -distance.value_or(kUnknown));
}

NearestPort nearest(const Node& node, const Gpu& gpu, const std::vector<std::size_t>& ports,
                    const std::vector<std::size_t>& load) {
  std::size_t best = 0;
  std::size_t equal = 1;
  for (std::size_t i = 1; i < ports.size(); ++i) {
    const auto here = nearness(node, gpu, ports[i]);
    const auto there = nearness(node, gpu, ports[best]);
    if (here < there) continue;
    equal = here == there ? equal + 1 : 1;
    if (here > there || load[i] < load[best]) best = i;
  }
  return {best, equal};
}

}  // namespace

std::vector<NearestPort> assign_ports(const Node& node, const std::vector<std::size_t>& ports) {
  if (ports.empty()) return {};
  std::vector<NearestPort> assigned;
  std::vector<std::size_t> load(ports.size(), 0);  // GPUs per port
  for (const Gpu& gpu : node.gpus) {
    NearestPort choice = nearest(node, gpu, ports, load);
    ++load[choice.port];
    choice.port = ports[choice.port];
    assigned.push_back(choice);
  }
  return assigned;
}

std::optional<std::size_t> find_gpu(const Node& node, std::string_view gpu) {
  if (const auto index = parse_decimal(gpu)) {
    return *index < node.gpus.size() ? std::optional<std::size_t>(*index) : std::nullopt;
  }
  if (gpu.size() < 8) return std::nullopt;
  const auto found = std::find_if(node.gpus.begin(), node.gpus.end(), [gpu](const Gpu& candidate) {
    return candidate.bus_address == gpu || (gpu.starts_with("GPU-") && candidate.uuid == gpu);
  });
  if (found == node.gpus.end()) return std::nullopt;
  return static_cast<std::size_t>(found - node.gpus.begin());
}

}  // namespace ddp::fabric
