// SPDX-License-Identifier: Apache-2.0
// Selects the RDMA ports for training traffic on nodes that also have ports for storage or
// management. The plan, the check of the node and the check of the network all use this choice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "spank_plugin/fabric/node/node.h"

namespace ddp::fabric {

enum class LeftOutBy : std::uint8_t {
  site,              // the site's file names other ports
  protocol,          // iWARP, usNIC
  software,          // RDMA over an ordinary interface (rxe, siw)
  virtual_function,  // of a device that is there itself
  address,           // RoCE without an address that other nodes can reach
  link_layer,
  rate,
  route,  // the default route
  place,  // far from the GPUs
  limit,  // more ports than NCCL uses
};

// A port and the reason why it is not used, or why its use is doubtful.
struct LeftOutPort {
  std::size_t port = 0;  // index into node.ports
  LeftOutBy by = LeftOutBy::site;
  std::string reason;  // "Ethernet beside InfiniBand"
};

struct ComputePorts {
  std::vector<std::size_t> ports;  // indices into node.ports, in PCI order
  std::vector<LeftOutPort> left_out;
  std::vector<LeftOutPort> doubtful;  // among `ports`: may be for storage or management

  bool contains(std::size_t port) const noexcept;
  // Returns nullptr if the port is not left out.
  const LeftOutPort* find_left_out(std::size_t port) const noexcept;
};

// Selects among all active InfiniBand and RoCE ports. If the site's file names ports of this node,
// those are the ones. Otherwise:
//
// 1. Ports that are no use beside better ones are left out: iWARP, usNIC, software devices,
//    virtual functions, RoCE ports without an address.
// 2. The rest is grouped by link layer and rate. The compute fabric is the group with the most
//    bandwidth, where groups near the GPUs take precedence (port_groups.h).
// 3. Groups of another link layer, rate or place are left out, and so are ports as fast as the
//    compute fabric with the default route that are farther from the GPUs than its other ports.
// 4. If more than 32 ports remain, which is NCCL's limit, the nearest to the GPUs are used.
//
// iWARP and usNIC ports, which NCCL cannot use, are always left out. EFA ports and inactive ports
// are in neither list.
ComputePorts choose_compute_ports(const Node& node);

// Returns "=mlx5_0:1,mlx5_1:1". The = requests exact matches: without it, mlx5_1 would also select
// mlx5_10.
std::string exact_port_list(const Node& node, const std::vector<std::size_t>& ports);

}  // namespace ddp::fabric
