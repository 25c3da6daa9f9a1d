// SPDX-License-Identifier: Apache-2.0
// Selects the RDMA ports for training traffic on nodes that have others for storage or management.
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

// Selects from NCCL's active InfiniBand and RoCE ports those of the fabric that fits the GPUs: the
// ports are grouped by link layer and rate, and the group with the most bandwidth, those near the
// GPUs first, is the compute fabric. Another group is left out only for a reason: another link
// layer (NCCL cannot combine them); less than half the rate; exactly half the rate, and near no
// GPU; slower, or a bond, with the default route; or all of it across the CPU from every GPU while
// the compute ports are near. If no port shares a root port with a GPU, NUMA distances decide what
// is near. EFA and inactive ports are in neither list.
ComputePorts choose_compute_ports(const Node& node);

// "=mlx5_0:1,mlx5_1:1". The exact form: without =, mlx5_1 would also select mlx5_10.
std::string exact_port_list(const Node& node, const std::vector<std::size_t>& ports);

}  // namespace ddp::fabric
