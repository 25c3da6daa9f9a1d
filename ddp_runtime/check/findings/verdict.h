// SPDX-License-Identifier: Apache-2.0
// The outcome of one run of ddp-check and its output formats: lines for people, JSON for scripts, a
// list of nodes for `sbatch --exclude`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/check/findings/finding.h"

namespace ddp::check {

struct Verdict {
  std::string command;             // "node" or "net"
  std::vector<std::string> nodes;  // the nodes checked, missing ones included
  Findings findings;
  bool finished =
      true;  // false: interim results, written before a stage that may terminate the process
  std::string summary;  // text of the verdict line if there are no problems
  // Figures for the end of the verdict line, as label=value, for example for plots.
  std::vector<std::pair<std::string, double>> figures;
  std::vector<std::string> notes;  // sentences that are not findings, such as unusual settings
  nlohmann::json measurements = nlohmann::json::object();  // the raw numbers behind the findings

  Severity severity() const noexcept { return findings.severity(); }
};

// The nodes with a CRITICAL finding of their own, each once, in the order of Verdict::nodes. These
// nodes must not be used. A link whose faulty end is unknown blames neither node. The result
// contains only valid node names from Verdict::nodes, because they are passed to scontrol and
// written to exclude files.
std::vector<std::string> bad_nodes(const Verdict& verdict);

// "CRITICAL node3 mlx5_0:1 infiniband.rate: 200 Gb/s, expected 400 Gb/s: <evidence>; <action>"
std::string line_of(const Finding& finding);

// "ddp-check net CRITICAL - node3 (net.missing) | nodes=4". Lists each problem with its node.
std::string verdict_line(const Verdict& verdict);

// One line for each finding that is not OK, most severe first, then the notes and the verdict line.
std::string text_of(const Verdict& verdict);

// Schema slurm-ddp/check/2. It differs from schema 1 in "WAY_retests", which was "WAY_retrials".
// `program` is name and version; `unix_time` is in seconds.
nlohmann::json json_of(const Verdict& verdict, const std::string& program, double unix_time);

// One name per line; empty if no node is bad.
std::string exclude_list(const Verdict& verdict);

}  // namespace ddp::check
