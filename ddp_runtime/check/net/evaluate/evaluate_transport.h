// SPDX-License-Identifier: Apache-2.0
// Evaluates which devices carried the data of a stage on each node. An MPI library may silently
// fall back to slow sockets on one node, and the whole job then waits for that node.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/measure/traffic.h"

namespace ddp::check {

struct NodeTransport {
  std::vector<std::string> carriers;  // devices, busiest first; empty if only memory was used
  std::string modules;                // modules of the MPI library, if it was used
};
using Transports = std::map<std::string, NodeTransport>;  // by node

// Returns one finding that lists the devices used or, for transports other than TCP, one finding
// for each node that used interfaces while most nodes used RDMA ports. If `rail` is not empty, it
// is the interface that should have carried the data, and nodes on which a different interface
// carried it have a finding, too. UNKNOWN if no node answered. `kind` is the prefix of the check
// name: "mpi.transport".
std::vector<Finding> evaluate_transport(const std::string& kind, const Transports& transports,
                                        const std::string& rail = {});

// "eth0", "mlx5_0:1 mlx5_1:1", "memory"
std::string carriers_text(const NodeTransport& transport);
// The carriers of all nodes, each listed once: "eth0, ens5".
std::string carriers_text(const Transports& transports);

}  // namespace ddp::check
