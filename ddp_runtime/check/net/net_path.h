// SPDX-License-Identifier: Apache-2.0
// A path between the nodes of a step, such as TCP over one interface, and the nodes that have it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {

struct NetPath {
  TransportKind stage = TransportKind::tcp;
  std::string kind;       // "tcp", "tcp_eth1", "mpi": used in figures and measurements
  std::string title;      // for people
  std::string rail = {};  // the interface to use; empty: chosen by the kernel
  std::map<std::string, RdmaPort> ports = {};  // RDMA: the ports of the rail, by node
  bool few_rounds = false;                     // it is one of several RDMA ports
};

// Those of `nodes`, all of which have reported, that have an address or an RDMA port on the rail,
// or GPUs for NCCL. Only these are measured with each other, so that no node is left without a
// measurement because its partners lack the path.
std::vector<NodeEntry> nodes_with(const NetPath& path, const std::vector<NodeEntry>& nodes,
                                  const std::map<int, Hello>& present);

// "it can be measured only on n1". `nodes`: the nodes with a path, one or none.
std::string reason_for_no_pair(const std::vector<NodeEntry>& nodes);

// Classes of the nodes by the rates of their links: only nodes with the same rate are compared.
Classes classes_on(const NetPath& path, const std::vector<NodeEntry>& nodes,
                   const std::map<int, Hello>& present);

// The rate of the interface of a path over TCP, if known. That of other paths is not known, because
// MPI may use any interface.
std::optional<double> link_rate_on(const NetPath& path, const Hello& task);

}  // namespace ddp::check
