// SPDX-License-Identifier: Apache-2.0
// The RDMA ports of this node that a job uses, and how ib_write_bw addresses them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/environment.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "spank_plugin/fabric/node/node.h"

namespace ddp::check {

struct OwnRdmaPort {
  RdmaPort port;
  std::optional<int> gid_index = {};  // entry of its address table; set if the port is Ethernet
};

struct RdmaTool {
  std::string program = "ib_write_bw";
  std::vector<OwnRdmaPort> ports = {};  // in the order of the rails; empty: nothing to measure
  std::string untested = {};            // why other ports cannot be measured; may be empty
  bool runnable() const;                // whether there is a port and the program is installed
};

struct RdmaRequest {
  std::string program = "ib_write_bw";
  std::vector<std::string> ports = {};  // the user's choice, taken unchanged; empty: those of a job
};

// The ports that NCCL uses in a job on this node, in PCI order: those of NCCL_IB_HCA (from the
// environment, NCCL's files or the site's file) or, if it is unset or selects none, the ports of
// the compute fabric. Without the ports that ib_write_bw cannot connect: EFA, iWARP, usNIC, and
// RoCE ports without an address that other nodes can reach.
RdmaTool find_rdma(const fabric::Node& node, const Environment& environment,
                   const RdmaRequest& request);

// The same for the machine that this process runs on.
RdmaTool find_own_rdma(const Environment& environment, const RdmaRequest& request);

}  // namespace ddp::check
