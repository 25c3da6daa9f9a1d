// SPDX-License-Identifier: Apache-2.0
// The command line of ddp-run, and the plan that it makes of it and of the job around it.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp_runtime/elastic/run/run_loop.h"

namespace ddp::tools {

struct RunArguments {
  std::string nodes;
  int spares = 0;
  std::string launcher = "auto";
  std::string launcher_options;
  std::uint64_t blocks = 0;
  bool no_check = false;
  bool requeue = false;
  std::string report_directory;
  elastic::RunPlan plan;
};

// Adds the options that fill `arguments`; both must live as long as the other.
void add_run_options(CLI::App& app, RunArguments& arguments);

// The plan for a program, from its arguments, the environment of the job, and, if some of its nodes
// are spares, what slurmctld says of its switches. Throws UsageError if they contradict each other,
// or if this is one of several tasks of a step; without a text if another one of these says it.
elastic::RunPlan plan_run(RunArguments arguments, std::vector<std::string> program);

// Says a sentence of ddp-run to the user.
void complain(const std::string& text);

}  // namespace ddp::tools
