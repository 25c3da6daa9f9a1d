// SPDX-License-Identifier: Apache-2.0
// `ddp-check net`, run by every task of a job step: which tasks reported, whether names and
// addresses agree, how fast and how reliably the nodes exchange data over TCP and MPI, and which
// nodes are to blame. All tasks exit with the same code.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"
#include "ddp_runtime/check/net/measure/inject.h"
#include "ddp_runtime/check/net/measure/nccl_pair.h"
#include "ddp_runtime/check/net/measure/write_bandwidth.h"
#include "ddp_runtime/check/net/step/job_step.h"
#include "ddp_runtime/check/verdict.h"
#include "ddp_runtime/comm/secret/step_secret.h"

namespace ddp::check {

struct NetOptions {
  JobStep step;
  std::string program;      // name and version; the same for all tasks
  std::string host;         // the machine's own host name
  comm::StepSecret secret;  // with which the tasks authenticate each other
  std::vector<Injection> injections;
  std::chrono::milliseconds deadline{30'000};    // for all tasks to report
  std::chrono::milliseconds pair_limit{10'000};  // for one exchange
  std::chrono::milliseconds join_limit{60'000};  // for MPI to start
  std::size_t bytes = std::size_t{32} << 20;     // size of one exchange in each direction
  // Time for a command and its answer to travel, on top of the work itself, and for a ping.
  std::chrono::milliseconds grace{3'000};
  bool mpi = true;
  bool verbs = true;                   // if all nodes have RDMA
  RdmaTool rdma;                       // of this node
  bool nccl = true;                    // between GPUs
  NcclTool nccl_tool;                  // of this node
  std::vector<std::string> known_bad;  // nodes that another check rejected
  std::vector<std::string> rails;      // interfaces to measure one by one; {"auto"}: all equal ones
  std::uint64_t seed = 0;              // seed for the plan of rounds; 0: from the step's identity
  int rounds = 0;  // of pairs; 0: all pairs for up to 8 nodes, three rounds for more
  PairRules rules;
  std::optional<double> link_bytes_per_second;        // what each node's link can carry, if known
  std::optional<double> fewest_bus_bytes_per_second;  // that an all-reduce must reach
  // Called on rank 0 only. The verdict is published before any task is told to exit.
  std::function<void(const std::string& line)> progress = [](const std::string&) {};
  std::function<void(const Verdict& verdict)> publish = [](const Verdict&) {};
  // The same, for an interim verdict before something that may terminate this process.
  std::function<void(const Verdict& verdict)> keep = [](const Verdict&) {};
};

struct NetOutcome {
  int exit_code = 3;
  std::string complaint = {};  // for stderr: this task has no verdict, or could not publish it
  bool left_behind = false;    // a thread still hangs: exit with _Exit
};

// Throws UsageError if an injected fault names a node that is not part of the step.
NetOutcome run_net(const NetOptions& options);

}  // namespace ddp::check
