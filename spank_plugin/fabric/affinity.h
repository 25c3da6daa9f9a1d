// SPDX-License-Identifier: Apache-2.0
// Assigns RDMA ports to GPUs: a GPU and a port that share PCI bridges belong together.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "spank_plugin/fabric/node.h"

namespace ddp::fabric {

struct NearestPort {
  std::size_t port = 0;          // index into node.ports
  std::size_t equally_near = 1;  // number of ports that are as near as this one, itself included
};

// One entry per GPU of the node, chosen among `ports` (indices into node.ports): the most shared
// bridges first, then the nearest NUMA node, then the port with the fewest GPUs so far, then the
// first. All tasks of a node get the same table. Empty if there are no ports.
std::vector<NearestPort> assign_ports(const Node& node, const std::vector<std::size_t>& ports);

// The index into node.gpus of "3", "GPU-<uuid>" or "0000:1b:00.0"; nullopt for anything else.
std::optional<std::size_t> find_gpu(const Node& node, std::string_view gpu);

}  // namespace ddp::fabric
