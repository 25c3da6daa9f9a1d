// SPDX-License-Identifier: Apache-2.0
// The command line of ddp-launch.
#pragma once

#include <string>
#include <vector>

namespace ddp::launch {

constexpr int kUsageError = 2;  // exit status for a wrong command line

struct CommandLine {
  enum class Action { run, explain };
  enum class Format { table, json, exports, task_prolog };

  Action action = Action::run;
  Format format = Format::table;
  bool verbose = false;  // for Action::explain
  bool watch = false;
  std::string spec;                  // --ddp; empty if not given
  std::vector<std::string> command;  // for Action::run; at least one word
};

// The action to perform, or the exit status: help, version and errors have already been printed.
struct ParsedCommandLine {
  CommandLine command_line;
  bool ends = false;
  int exit_code = 0;
};

ParsedCommandLine parse_command_line(int argc, char** argv);

}  // namespace ddp::launch
