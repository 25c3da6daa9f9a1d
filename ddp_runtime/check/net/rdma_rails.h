// SPDX-License-Identifier: Apache-2.0
// The rails of RDMA: which compute port of one node is measured against which of another.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"
#include "ddp_runtime/check/net/measure/protocol.h"

namespace ddp::check {

struct RdmaRail {
  std::string name;                       // of the port on most nodes: "mlx5_3:1"
  std::map<std::string, RdmaPort> ports;  // by node; without the nodes that lack the rail
};

struct RdmaRails {
  std::vector<RdmaRail> rails;     // in PCI order
  std::vector<Finding> findings;   // names the nodes with fewer compute ports than most
  std::vector<std::string> notes;  // nodes whose ports have other names, or are more than usual
};

// A rail consists of the ports at one position of the PCI order, among the ports that most nodes
// have or that half of the nodes of one make have. A node with another number of ports has those at
// the same PCI addresses or, if no address matches, with the same names. Fewer ports than on most
// nodes are CRITICAL, but WARNING for a node with another number of CPUs, and if more than one node
// in four has as few: those may be another kind of node.
RdmaRails find_rdma_rails(const std::map<int, Hello>& present);

// The rate of the rail's ports in bytes per second, if all nodes report the same.
std::optional<double> rate_of(const RdmaRail& rail);

}  // namespace ddp::check
