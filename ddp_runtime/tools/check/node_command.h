// SPDX-License-Identifier: Apache-2.0
// `ddp-check node`: checks only this machine.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "ddp_runtime/tools/check/check_outputs.h"

namespace ddp::tools {

struct NodeArguments {
  std::string node;
  std::vector<std::string> directories;
  std::vector<std::string> interfaces;
  std::string counters;
  int mtu = 0;
  double speed_gbps = 0;
  bool gpu_copies = false;
};

// Adds the command; its options are stored in `arguments` and `outputs`.
void add_node(CLI::App& app, NodeArguments& arguments, CheckOutputs& outputs);

// Runs the checks and publishes the verdict. Returns the exit code of the verdict. Exits the
// process directly if a check hangs. Throws UsageError if two outputs are the same file.
int run_node(const NodeArguments& arguments, const CheckOutputs& outputs);

}  // namespace ddp::tools
