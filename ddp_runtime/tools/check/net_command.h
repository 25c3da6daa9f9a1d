// SPDX-License-Identifier: Apache-2.0
// `ddp-check net`: checks the network between the tasks of a job step.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_pairs.h"
#include "ddp_runtime/check/net/measure/nccl/nccl_calls.h"
#include "ddp_runtime/tools/check/check_outputs.h"

namespace ddp::tools {

struct NetArguments {
  double deadline = 30;
  double pair_limit = 10;
  double join_limit = 60;
  int mib = 32;
  bool no_mpi = false;
  bool no_verbs = false;
  std::string write_bandwidth = "ib_write_bw";
  std::vector<std::string> hca;
  bool no_nccl = false;
  std::string nccl_library = nccl::kLibrary;
  std::string cuda_library = cuda::kDriverLibrary;
  std::vector<std::string> rails;
  std::vector<std::string> known_bad;
  int port = 0;
  std::uint64_t seed = 0;
  check::PairRules rules;
  std::string noise = "unknown";
  std::string missing_tool = "note";
  double min_busbw = 0;
  double expect_gbps = 0;
  int rounds = 0;
  std::vector<std::string> inject;
  std::string pretend_nodes;
  std::string key = "auto";
};

// Adds the command; its options are stored in `arguments` and `outputs`.
void add_net(CLI::App& app, NetArguments& arguments, CheckOutputs& outputs);

// Runs this task's part of the check; rank 0 publishes the verdict. Returns the exit code of the
// verdict, which is the same for all tasks. Exits the process directly if a thread hangs. Throws
// UsageError for options that do not fit the step.
int run_net(const NetArguments& arguments, const CheckOutputs& outputs);

}  // namespace ddp::tools
