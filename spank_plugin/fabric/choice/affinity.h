// SPDX-License-Identifier: Apache-2.0
// Assigns RDMA ports to GPUs by the number of PCI bridges that they share.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "spank_plugin/fabric/node/node.h"

namespace ddp::fabric {

struct NearestPort {
  std::size_t port = 0;          // index into node.ports
  std::size_t equally_near = 1;  // number of ports at this distance, including this one
};

// Returns one entry per GPU of the node, chosen among `ports` (indices into node.ports): the most
// shared bridges win, then the nearest NUMA node, then the port with the fewest GPUs so far, then
// the first in the list. All tasks of a node compute the same table. Empty if there are no ports.
std::vector<NearestPort> assign_ports(const Node& node, const std::vector<std::size_t>& ports);

// Returns the index into node.gpus of a GPU named "3", "GPU-<uuid>" or "0000:1b:00.0"; nullopt for
// any other text.
std::optional<std::size_t> find_gpu(const Node& node, std::string_view gpu);

}  // namespace ddp::fabric
