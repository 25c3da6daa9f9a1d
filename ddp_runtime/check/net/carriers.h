// SPDX-License-Identifier: Apache-2.0
// Finds out which devices of each node carried the data of a path.
#pragma once

#include <map>
#include <string>

#include "ddp_runtime/check/net/evaluate/evaluate_transport.h"
#include "ddp_runtime/check/net/net_path.h"
#include "ddp_runtime/check/net/net_state.h"

namespace ddp::check {

// The traffic of a node's devices, and the modules of its MPI library.
struct NodeTraffic {
  Traffic traffic;
  std::string modules;
};
using TrafficByNode = std::map<std::string, NodeTraffic>;

// Without the nodes that do not answer.
TrafficByNode ask_traffic(const NetState& state);

// `before`: the traffic before the path was measured. Adds the findings and the measurements.
// Returns " through eth0"; empty if nothing is known.
std::string report_carriers(NetState& state, const NetPath& path, const TrafficByNode& before);

}  // namespace ddp::check
