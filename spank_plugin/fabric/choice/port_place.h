// SPDX-License-Identifier: Apache-2.0
// The place of an RDMA port in its node: how near it is to the GPUs, whether it leads out of the
// cluster, and which other ports are of its kind. Rates play no part here, because a port with a
// damaged link has another rate than the ports that it belongs to.
#pragma once

#include <cstddef>
#include <optional>

#include "spank_plugin/fabric/node/node.h"

namespace ddp::fabric {

// Returns the largest number of PCI bridges that the port shares with a GPU; 0 if there is no GPU.
std::size_t bridges_to_gpus(const Node& node, std::size_t port);

// True if the port and a GPU are below one root port, so that no CPU lies between them.
bool is_near_gpu(const Node& node, std::size_t port);

// Returns the NUMA distance from the port to the nearest GPU; nullopt if unknown.
std::optional<int> distance_to_gpus(const Node& node, std::size_t port);

// True if the port is farther from every GPU than the other: by bridges, then by NUMA distance.
bool is_farther(const Node& node, std::size_t port, std::size_t other);

// True if an interface of the port has the default route.
bool leads_outside(const Node& node, const InfinibandPort& port);

// True if the ports have the same link layer, driver and board, and are both near a GPU, or both
// far from all and equal in leading outside: a difference between their links is then a fault
// rather than a plan. Two unknown boards count as the same.
bool are_of_one_kind(const Node& node, std::size_t a, std::size_t b);

}  // namespace ddp::fabric
