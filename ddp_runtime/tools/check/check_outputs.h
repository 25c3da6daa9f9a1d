// SPDX-License-Identifier: Apache-2.0
// Outputs of a verdict: lines for people, files for scripts, report pages, and drained nodes.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "ddp_runtime/check/findings/verdict.h"

namespace ddp::tools {

struct CheckOutputs {
  std::string json;
  std::string exclude;
  std::string directory;
  int wanted = 0;  // nodes that the job needs; 0: not given
  bool act = false;
  std::string max_drain;   // "20" or "10%"; empty: no limit
  int resume_after = 0;    // clean checks in a row; 0: resume no nodes
  std::string state_file;  // keeps the number of clean checks
};

// Adds --json and --exclude-file.
void add_outputs(CLI::App& command, CheckOutputs& outputs);

// Adds --out and --want, for commands that check several nodes.
void add_outputs_of_nodes(CLI::App& command, CheckOutputs& outputs);

// Adds --act and --max-drain.
void add_act(CLI::App& command, CheckOutputs& outputs);

// Adds --resume-after and --state, for commands that check their own node.
void add_resume(CLI::App& command, CheckOutputs& outputs);

// "ddp-check" and its version, as recorded in the files.
std::string program_name();

// Throws UsageError if two of the files, or one of them and the file of --counters (empty: not
// given), are the same.
void require_distinct_outputs(const CheckOutputs& outputs, const std::string& counters_file = {});

// Prints the findings and the verdict, writes the requested files, and drains the bad nodes or
// prints the commands that drain them. Throws RuntimeError if a file cannot be written or scontrol
// cannot be run.
void publish(const check::Verdict& verdict, const CheckOutputs& outputs);

// Writes the findings so far, in case the check is killed. Scripts should not act on them yet. If a
// file cannot be written, the error is reported at the end, when it is written again.
void keep(const check::Verdict& verdict, const CheckOutputs& outputs);

// Removes the results of an earlier run, so that they cannot be mistaken for results of this run if
// it is interrupted.
void remove_outdated(const CheckOutputs& outputs);

}  // namespace ddp::tools
