// SPDX-License-Identifier: Apache-2.0
// Selects the RDMA ports for training traffic on nodes that also have ports for storage or
// management.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "spank_plugin/fabric/node.h"

namespace ddp::fabric {

struct ComputePorts {
  std::vector<std::size_t> ports;     // indices into node.ports
  std::vector<std::string> left_out;  // "mlx5_4:1 (Ethernet beside InfiniBand)", for messages
};

// Selects the ports of the compute fabric from NCCL's active InfiniBand and RoCE ports. The ports
// are grouped by link layer and rate; the compute fabric is the group with the most bandwidth,
// where groups near the GPUs take precedence. Another group is left out if it has another link
// layer (NCCL cannot combine them); less than half the rate; exactly half the rate, and no port
// near a GPU; or the default route, and either a lower rate or a bond. It is also left out if a CPU
// lies between all of its ports and every GPU while the compute ports are near. If no port shares a
// root port with a GPU, NUMA distances decide which ports are near. EFA ports and inactive ports
// are in neither list.
ComputePorts choose_compute_ports(const Node& node);

// Returns "=mlx5_0:1,mlx5_1:1". The = requests exact matches: without it, mlx5_1 would also select
// mlx5_10.
std::string exact_port_list(const Node& node, const std::vector<std::size_t>& ports);

}  // namespace ddp::fabric
