#pragma once
// The command line of ddp-launch.

#include <string>
#include <vector>

namespace ddp::launch {

constexpr int kUsageError = 2;  // exit code of a mistake on the command line

struct CommandLine {
  enum class Action { run, explain };
  enum class Format { table, json, exports };

  Action action = Action::run;
  Format format = Format::table;
  bool verbose = false;              // of Action::explain
  std::string spec;                  // --ddp; empty if it was not given
  std::vector<std::string> command;  // of Action::run; at least one word
};

// What to do, or how to end: help, version and mistakes have been printed already.
struct ParsedCommandLine {
  CommandLine command_line;
  bool ends = false;
  int exit_code = 0;
};

ParsedCommandLine parse_command_line(int argc, char** argv);

}  // namespace ddp::launch
