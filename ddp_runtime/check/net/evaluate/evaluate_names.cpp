// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/evaluate_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "ddp_runtime/check/findings/resolve.h"

namespace ddp::check {
namespace {

using Addresses = std::vector<std::string>;

std::string shown(const Addresses& addresses) {
  return addresses.empty() ? "nothing" : fmt::format("{}", fmt::join(addresses, " "));
}

Finding own_name(const std::string& node, const Addresses& addresses) {
  Finding finding{.check = "name.own",
                  .severity = Severity::ok,
                  .node = node,
                  .value = shown(addresses),
                  .rule = "a node's own name is an address that others can use"};
  if (only_loopback(addresses)) {
    finding.severity = Severity::warning;
    finding.expected = "an address that others can use";
    finding.evidence = "other nodes cannot reach a library that announces this address";
    finding.action = "give the name its real address in the node's /etc/hosts";
  }
  return finding;
}

// The addresses that most nodes report for `name`, and the number of these nodes.
std::pair<std::string, int> most_say(const Resolutions& resolutions, const std::string& name) {
  std::map<std::string, int> counts;
  for (const auto& [node, answers] : resolutions) {
    const auto answer = answers.find(name);
    if (node != name && answer != answers.end()) ++counts[shown(answer->second)];
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == counts.end()) return {"nothing", 0};
  return {most->first, most->second};
}

}  // namespace

std::vector<Finding> evaluate_names(const Resolutions& resolutions) {
  std::vector<Finding> findings;
  std::map<std::string, std::pair<std::string, int>> agreed;
  for (const auto& [node, answers] : resolutions) {
    for (const auto& [name, addresses] : answers) {
      if (node == name && !addresses.empty()) {
        findings.push_back(own_name(node, addresses));
        continue;
      }
      if (!agreed.contains(name)) agreed[name] = most_say(resolutions, name);
      const auto& [majority, count] = agreed.at(name);
      if (shown(addresses) == majority || count < 2) continue;
      findings.push_back({.check = "name.resolution",
                          .severity = Severity::warning,
                          .node = node,
                          .device = name,
                          .value = shown(addresses),
                          .expected = majority,
                          .rule = "all nodes resolve a node's name to the same addresses",
                          .evidence = fmt::format("{} nodes resolve it to {}", count, majority),
                          .action = "make /etc/hosts and DNS agree on all nodes"});
    }
  }
  return findings;
}

}  // namespace ddp::check
