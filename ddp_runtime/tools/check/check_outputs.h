// What becomes of a verdict: lines for people, files for programs and pages, and drained nodes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "ddp_runtime/check/verdict.h"

namespace ddp::tools {

struct CheckOutputs {
  std::string json;
  std::string exclude;
  std::string directory;
  int wanted = 0;  // nodes that the job needs; 0: nobody said
  bool act = false;
  std::string max_drain;   // "20" or "10%"; empty: no limit
  int resume_after = 0;    // clean checks in a row; 0: nothing is resumed
  std::string state_file;  // where these are counted
};

// --json and --exclude-file
void add_outputs(CLI::App& command, CheckOutputs& outputs);

// --out and --want, for a command that sees several nodes
void add_outputs_of_nodes(CLI::App& command, CheckOutputs& outputs);

// --act, --max-drain
void add_act(CLI::App& command, CheckOutputs& outputs);

// --resume-after and --state, for a command that looks at its own node
void add_resume(CLI::App& command, CheckOutputs& outputs);

// "ddp-check" and its version: what the files say they were written by.
std::string program_name();

// Prints the findings and the verdict, writes the files that were asked for, and drains the bad
// nodes or says how to. Throws RuntimeError if a file cannot be written, or scontrol not be asked.
void publish(const check::Verdict& verdict, const CheckOutputs& outputs);

// Writes the findings so far, for whoever comes after a check that was killed; nothing to act upon
// yet. A file that cannot be written is told of at the end, when it is written again.
void keep(const check::Verdict& verdict, const CheckOutputs& outputs);

// What an earlier run wrote must not pass for this one's result if this one ends early.
void remove_outdated(const CheckOutputs& outputs);

}  // namespace ddp::tools
