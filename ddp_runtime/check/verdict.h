// SPDX-License-Identifier: Apache-2.0
// The outcome of one run of ddp-check and how it is reported: lines for people, JSON for scripts, a
// list of nodes for `sbatch --exclude`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/check/finding.h"

namespace ddp::check {

struct Verdict {
  std::string command;             // "node" or "net"
  std::vector<std::string> nodes;  // the nodes checked, missing ones included
  Findings findings;
  bool finished =
      true;  // false: interim results, written before something that may terminate the process
  std::string summary;  // text of the verdict line if all is well
  // Figures at the end of the verdict line, as label=value, for example for plotting.
  std::vector<std::pair<std::string, double>> figures;
  nlohmann::json measurements = nlohmann::json::object();  // the raw numbers behind the findings

  Severity severity() const noexcept { return findings.severity(); }
};

// Nodes that must not be used, each once, in the order of Verdict::nodes: those with a CRITICAL
// finding of their own. A link whose faulty end is unknown blames neither node. Contains only names
// from Verdict::nodes that are valid node names: they end up in scontrol's arguments and in exclude
// files.
std::vector<std::string> bad_nodes(const Verdict& verdict);

// "CRITICAL node3 mlx5_0:1 infiniband.rate: 200 Gb/s, expected 400 Gb/s: <evidence>; <action>"
std::string line_of(const Finding& finding);

// "ddp-check net CRITICAL - node3 (net.missing) | nodes=4". Each problem is listed with its node.
std::string verdict_line(const Verdict& verdict);

// One line for each finding that is not OK, most severe first, then the verdict line.
std::string text_of(const Verdict& verdict);

// Schema slurm-ddp/check/2: like schema 1, in which "WAY_retests" was called "WAY_retrials".
// `program` is name and version; `unix_time` is in seconds.
nlohmann::json json_of(const Verdict& verdict, const std::string& program, double unix_time);

// One name per line; empty if no node is bad.
std::string exclude_list(const Verdict& verdict);

}  // namespace ddp::check
