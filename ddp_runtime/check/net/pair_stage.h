// SPDX-License-Identifier: Apache-2.0
// Runs the exchanges that PairSession plans, over TCP, RDMA, NCCL or MPI.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/locate/locate.h"
#include "ddp_runtime/check/net/locate/retest.h"
#include "ddp_runtime/check/net/step/leader.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {

struct PairStageOptions {
  TransportKind stage = TransportKind::tcp;
  std::size_t bytes = 0;            // size of one exchange in each direction
  std::chrono::milliseconds limit;  // time limit for one exchange
  std::chrono::milliseconds grace;  // time for command and answer, in addition to the limit
  std::uint64_t seed = 0;           // seed of the plan, and first number of the exchanges
  PeerRule rule;                    // thresholds for slow nodes
  int rounds = 0;                   // rounds of the tournament; 0: chosen by PairSession
  std::string rail = {};            // the interface to use; empty: chosen by the kernel
  Classes classes = {};             // classes of the nodes, by link rate
  std::map<std::string, RdmaPort> ports = {};  // RDMA: the ports of the rail, by node
};

// The address at which `caller` reaches `called`. A task on the leader's node may know only its
// loopback address; tasks on other nodes then use the address at which they reached the leader.
std::string address_for(const Hello& caller, const Hello& called);

struct PairStageResult {
  std::vector<PairResult> results;  // of the rounds
  std::vector<Retest> retests;
  std::string broken;  // why the stage stopped early; empty if it did not. MPI cannot continue
                       // after an error.
};

// Runs all planned rounds between the nodes, then the retests of suspects. Later rounds omit nodes
// that were lost. All nodes have reported and have what the stage measures.
PairStageResult run_pair_stage(Leader& leader, const std::vector<NodeEntry>& nodes,
                               const PairStageOptions& options, const Leader::Progress& progress);

}  // namespace ddp::check
