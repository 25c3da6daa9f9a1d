// `ddp-check net`, run by every task of a job step: who came, do names and addresses agree, how
// fast and how faithfully do the nodes exchange data over TCP and MPI, and which of them is to
// blame. All tasks end with the same exit code.
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
  std::string host;         // what this machine calls itself
  comm::StepSecret secret;  // by which the tasks know each other
  std::vector<Injection> injections;
  std::chrono::milliseconds deadline{30'000};    // for all tasks to report
  std::chrono::milliseconds pair_limit{10'000};  // for one exchange
  std::chrono::milliseconds join_limit{60'000};  // for MPI to start
  std::size_t bytes = std::size_t{32} << 20;     // of one exchange in each direction
  // For an order and its answer to travel, on top of the work itself, and for a sign of life.
  std::chrono::milliseconds grace{3'000};
  bool mpi = true;
  bool verbs = true;                   // where all nodes have RDMA
  RdmaTool rdma;                       // of this node
  bool nccl = true;                    // between GPUs
  NcclTool nccl_tool;                  // of this node
  std::vector<std::string> known_bad;  // nodes that another check condemned
  std::vector<std::string> rails;      // interfaces to measure one by one; {"auto"}: all alike
  std::uint64_t seed = 0;              // of the plan of rounds; 0: from the step's identity
  int rounds = 0;  // of pairs; 0: all pairs of up to 8 nodes, three rounds of more
  PairRules rules;
  std::optional<double> link_bytes_per_second;        // what each node's link can carry, if known
  std::optional<double> fewest_bus_bytes_per_second;  // an all-reduce must reach it
  // Called on rank 0 only. The verdict is made public before anybody is told to end.
  std::function<void(const std::string& line)> progress = [](const std::string&) {};
  std::function<void(const Verdict& verdict)> publish = [](const Verdict&) {};
  // Likewise, with what was found before something that may end this process; not the last word.
  std::function<void(const Verdict& verdict)> keep = [](const Verdict&) {};
};

struct NetOutcome {
  int exit_code = 3;
  std::string complaint = {};  // for stderr: this task has no verdict, or could not publish it
  bool left_behind = false;    // a thread still hangs: end with _Exit
};

// Throws UsageError if an injection names a node that the step does not have.
NetOutcome run_net(const NetOptions& options);

}  // namespace ddp::check
