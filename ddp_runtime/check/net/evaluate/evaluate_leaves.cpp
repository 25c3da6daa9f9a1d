// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/evaluate_leaves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

namespace ddp::check {
namespace {

using Names = std::set<std::string>;

// Whether a faulty switch or uplink can cause this finding on the nodes below it, unlike findings
// about a node's own configuration.
bool is_of_the_network(const Finding& finding) {
  constexpr std::array<std::string_view, 8> kKinds{"send", "receive",  "link",   "link_rate",
                                                   "loss", "exchange", "answer", "missing"};
  const bool bad = finding.severity == Severity::warning || finding.severity == Severity::critical;
  const std::string_view kind = std::string_view(finding.check).substr(finding.check.find('.') + 1);
  return bad && std::find(kKinds.begin(), kKinds.end(), kind) != kKinds.end();
}

struct Leaf {
  Names nodes;
  Names suspects;
  Severity severity = Severity::ok;
};

std::map<std::string, Leaf> suspects_by_leaf(const Findings& findings, const Leaves& leaves) {
  std::map<std::string, Leaf> result;
  for (const auto& [node, leaf] : leaves) result[leaf].nodes.insert(node);
  const auto suspect = [&](const std::string& node, Severity severity) {
    const auto leaf = leaves.find(node);
    if (leaf == leaves.end()) return;
    result[leaf->second].suspects.insert(node);
    result[leaf->second].severity = std::max(result[leaf->second].severity, severity);
  };
  for (const auto& finding : findings.all()) {
    if (!is_of_the_network(finding)) continue;
    const auto one = leaves.find(finding.node);
    const auto other = leaves.find(finding.peer);
    const bool inside =
        one != leaves.end() && other != leaves.end() && one->second == other->second;
    if (inside) continue;  // this link does not cross the switch's uplink
    suspect(finding.node, finding.severity);
    suspect(finding.peer, finding.severity);
  }
  return result;
}

// Fraction of the switch's nodes that are suspects.
double part_of(const Leaf& leaf) {
  return static_cast<double>(leaf.suspects.size()) / static_cast<double>(leaf.nodes.size());
}

bool looks_bad(const Leaf& leaf) {
  return leaf.suspects.size() >= 2 && part_of(leaf) > 0.5;
}

}  // namespace

Leaves leaves_of(const std::map<int, Hello>& present) {
  Leaves leaves;
  for (const auto& [rank, hello] : present) {
    if (!hello.leaf.empty()) leaves[hello.node] = hello.leaf;
  }
  return leaves;
}

std::vector<Finding> evaluate_leaves(const Findings& findings, const Leaves& leaves) {
  const auto by_leaf = suspects_by_leaf(findings, leaves);
  std::vector<std::string> bad;
  std::vector<std::string> good;
  for (const auto& [name, leaf] : by_leaf) (looks_bad(leaf) ? bad : good).push_back(name);
  if (bad.empty() || by_leaf.size() < 2) return {};
  // A bad link implicates the switches at both ends, so no switch is named if most of three or more
  // switches look bad.
  if (2 * bad.size() > by_leaf.size() && by_leaf.size() > 2) return {};
  Names named;
  Names suspects;
  std::size_t below = 0;
  Severity severity = Severity::ok;
  for (const auto& name : bad) {
    const Leaf& leaf = by_leaf.at(name);
    suspects.insert(leaf.suspects.begin(), leaf.suspects.end());
    below += leaf.nodes.size();
    severity = std::max(severity, leaf.severity);
    named.insert(name);
  }
  return {{.check = "net.leaf",
           .severity = severity,
           .device = fmt::format("switch {}", fmt::join(named, " or ")),
           .value = static_cast<double>(suspects.size()),
           .unit = "nodes",
           .expected = "at most half of the nodes below a switch look bad",
           .rule = "nodes below one switch share its faults",
           .evidence = fmt::format("{} of the {} nodes below it look bad: {}", suspects.size(),
                                   below, fmt::join(suspects, " ")),
           .action = fmt::format("check leaf {} or its uplink before the nodes",
                                 fmt::join(named, " or "))}};
}

}  // namespace ddp::check
