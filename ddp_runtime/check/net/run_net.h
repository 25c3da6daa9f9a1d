// SPDX-License-Identifier: Apache-2.0
// `ddp-check net`, run by every task of a job step. It checks that all tasks report and that names
// and addresses agree, measures how fast and how reliably the nodes exchange data over TCP and MPI,
// and finds the nodes to blame. All tasks exit with the same code.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/check/findings/verdict.h"
#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"
#include "ddp_runtime/check/net/measure/inject.h"
#include "ddp_runtime/check/net/measure/nccl/nccl_pair.h"
#include "ddp_runtime/check/net/measure/write_bandwidth.h"
#include "ddp_runtime/check/net/step/job_step.h"
#include "ddp_runtime/comm/secret/step_secret.h"

namespace ddp::check {

struct NetOptions {
  JobStep step;
  std::string program;      // name and version; the same for all tasks
  std::string host;         // the machine's own host name
  comm::StepSecret secret;  // authenticates the tasks to each other
  std::vector<Injection> injections;
  std::chrono::milliseconds deadline{30'000};    // limit for all tasks to report
  std::chrono::milliseconds pair_limit{10'000};  // limit for one exchange
  std::chrono::milliseconds join_limit{60'000};  // limit for MPI to start
  std::size_t bytes = std::size_t{32} << 20;     // size of one exchange in each direction
  // Time for a command and its answer to travel, in addition to the work itself. Also for a ping.
  std::chrono::milliseconds grace{3'000};
  bool mpi = true;
  bool verbs = true;   // measure RDMA where nodes have it
  RdmaTool rdma;       // RDMA tool of this node
  bool nccl = true;    // measure NCCL between GPUs
  NcclTool nccl_tool;  // NCCL tool of this node
  // The severity if only a tool is missing on a node that could be measured: OK or UNKNOWN.
  Severity missing_tool = Severity::ok;
  std::vector<std::string> known_bad;  // nodes that another check rejected
  std::vector<std::string> rails;      // measured separately; {"auto"}: ports alike on all nodes
  std::uint64_t seed = 0;              // seed for the plan of rounds; 0: from the step's identity
  int wanted = 0;                      // nodes that the job needs; 0: all good ones
  int rounds = 0;  // rounds of pairs; 0: all pairs for up to 8 nodes, three rounds for more
  PairRules rules;
  std::optional<double> link_bytes_per_second;        // rate of each node's link, if known
  std::optional<double> fewest_bus_bytes_per_second;  // minimum for an all-reduce, if given
  // Called on rank 0 only. The verdict is published before any task exits.
  std::function<void(const std::string& line)> progress = [](const std::string&) {};
  std::function<void(const Verdict& verdict)> publish = [](const Verdict&) {};
  // Stores an interim verdict before a stage that may terminate this process.
  std::function<void(const Verdict& verdict)> keep = [](const Verdict&) {};
};

struct NetOutcome {
  int exit_code = 3;
  std::string complaint = {};  // for stderr, if this task has no verdict
  bool left_behind = false;    // a thread still hangs: exit with _Exit
};

// Throws UsageError if an injected fault names a node that is not part of the step.
NetOutcome run_net(const NetOptions& options);

}  // namespace ddp::check
