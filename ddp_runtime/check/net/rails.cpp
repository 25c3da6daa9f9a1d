// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/rails.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/hostlist.h"
#include "ddp_runtime/check/findings/short_list.h"

namespace ddp::check {
namespace {

// Whether every node has the rail, at the same rate as `one`.
bool all_have(const std::string& name, const Rail& one, const std::map<int, Hello>& present) {
  for (const auto& [rank, hello] : present) {
    const auto rail = hello.rails.find(name);
    if (rail == hello.rails.end() || !rail->second.wire ||
        rail->second.bytes_per_second != one.bytes_per_second) {
      return false;
    }
  }
  return true;
}

// Interfaces of most nodes, by name, without loopback.
std::vector<std::string> usual_rails(const std::map<int, Hello>& present) {
  std::map<std::string, std::set<std::string>> nodes_by_rail;
  std::set<std::string> nodes;
  for (const auto& [rank, hello] : present) {
    nodes.insert(hello.node);
    for (const auto& [name, rail] : hello.rails) nodes_by_rail[name].insert(hello.node);
  }
  std::vector<std::string> usual;
  for (const auto& [name, those] : nodes_by_rail) {
    if (2 * those.size() > nodes.size() && name != "lo") usual.push_back(name);
  }
  return usual;
}

// A rail that most nodes lack is a mistake of the option, and no fault of those nodes.
Finding unusual_rail(Finding finding, const std::set<std::string>& having,
                     const std::map<int, Hello>& present) {
  const std::vector<std::string> nodes(having.begin(), having.end());
  const auto usual = usual_rails(present);
  finding.severity = Severity::unknown;
  finding.evidence =
      nodes.empty() ? fmt::format("no node has an interface {} with an address", finding.device)
                    : fmt::format("only on {}, and not on most nodes", compress_hostlist(nodes));
  finding.action = fmt::format("name in --rails what most nodes have: {}",
                               usual.empty() ? "nothing here" : short_list(usual));
  return finding;
}

}  // namespace

std::vector<std::string> alike_rails(const std::map<int, Hello>& present) {
  if (present.empty()) return {};
  std::map<double, std::vector<std::string>> by_speed;  // unknown speeds are listed under 0
  for (const auto& [name, rail] : present.begin()->second.rails) {
    if (rail.wire && all_have(name, rail, present)) {
      by_speed[rail.bytes_per_second.value_or(0)].push_back(name);
    }
  }
  if (by_speed.empty() || by_speed.rbegin()->second.size() < 2) return {};
  return by_speed.rbegin()->second;
}

std::vector<Finding> evaluate_rail(const std::string& rail, const std::map<int, Hello>& present) {
  Finding finding{.check = "rail.address",
                  .severity = Severity::ok,
                  .device = rail,
                  .value = "on all nodes",
                  .rule = "every node has an address on the rail"};
  std::set<std::string> having, lacking;
  for (const auto& [rank, hello] : present) {
    (hello.rails.contains(rail) ? having : lacking).insert(hello.node);
  }
  if (lacking.empty()) return {finding};
  finding.value = "none";
  finding.expected = "up, with an address";
  if (having.size() <= lacking.size()) return {unusual_rail(finding, having, present)};
  std::vector<Finding> findings;
  for (const auto& node : lacking) {
    findings.push_back(finding);
    findings.back().severity = Severity::critical;
    findings.back().node = node;
    findings.back().action = fmt::format("see `ip addr show {}` on this node", rail);
  }
  return findings;
}

}  // namespace ddp::check
