// What really carried the data of a stage, node by node: an MPI library that falls back to slow
// sockets on one node says nothing, and all of a job waits for it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/finding.h"
#include "ddp_runtime/check/net/measure/traffic.h"

namespace ddp::check {

struct NodeTransport {
  std::vector<std::string> carriers;  // devices, busiest first; none: memory only
  std::string modules;                // of the MPI library, if it was at work
};
using Transports = std::map<std::string, NodeTransport>;  // by node

// One finding that says what was used, or, except over TCP, one for each node that used interfaces
// where most used RDMA ports. `rail`, if any, is the interface that should have carried the data: a
// node where another did is named too. UNKNOWN if no node answered. `kind` begins the name:
// "mpi.transport".
std::vector<Finding> evaluate_transport(const std::string& kind, const Transports& transports,
                                        const std::string& rail = {});

// "eth0", "mlx5_0:1 mlx5_1:1", "memory"
std::string carriers_text(const NodeTransport& transport);
// The carriers of all nodes, each text once: "eth0, ens5".
std::string carriers_text(const Transports& transports);

}  // namespace ddp::check
