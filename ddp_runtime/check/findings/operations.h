// SPDX-License-Identifier: Apache-2.0
// Actions on a verdict for administrators and job scripts: choose the nodes to run on if more were
// allocated than needed, drain the bad nodes, and format the findings.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/check/findings/verdict.h"

namespace ddp::check {

// The nodes to run on. Excludes bad nodes, and one end of each bad or slow link as long as more
// nodes remain than wanted.
struct NodeChoice {
  int wanted = 0;  // 0: all good nodes
  int given = 0;
  std::vector<std::string> use;
  std::vector<std::string> leave_out;  // bad nodes, and one end of a bad link
  std::vector<std::string> spare;      // good nodes beyond the wanted number
  std::vector<std::pair<std::string, std::string>> bad_links;  // links with both ends in use
  bool enough() const { return wanted == 0 || static_cast<int>(use.size()) == wanted; }
};
NodeChoice choose_nodes(const Verdict& verdict, int wanted);
// CRITICAL, without a node, if too few nodes are left; otherwise no findings.
std::vector<Finding> evaluate_choice(const NodeChoice& choice);

// "64 nodes wanted, 66 given, 2 left out: run on these 64", with the bad links between these nodes.
std::string sentence_of(const NodeChoice& choice);

// The reason for draining a node. It starts with kReasonPrefix, which distinguishes it from reasons
// that others wrote, followed by the check, because sinfo shows only 20 characters.
inline constexpr const char* kReasonPrefix = "ddp-check:";
std::string reason_of(const Finding& finding);
struct Drain {
  std::string node;
  std::string reason;
};
std::vector<Drain> drains_of(const Verdict& verdict);

// The shell command that drains the node.
std::string scontrol_line(const Drain& drain);

// One JSON object per line: every finding, then every measured exchange.
std::string events_of(const Verdict& verdict, double unix_time);

// The report in Markdown. The headings are stable, because scripts may search for them.
std::string markdown_of(const Verdict& verdict, const NodeChoice& choice);

}  // namespace ddp::check
