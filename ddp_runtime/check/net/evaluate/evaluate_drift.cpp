// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/evaluate_drift.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "ddp_runtime/check/findings/threshold.h"
#include "ddp_runtime/check/net/locate/locate.h"

namespace ddp::check {
namespace {

constexpr double kMaxDriftSeconds = 2;
constexpr const char* kAbsent =
    "none";  // reported for a driver or library that only other nodes have

// The value that more than half of the nodes report, if there is one.
std::optional<std::string> majority(const std::map<std::string, std::vector<std::string>>& said) {
  std::size_t all = 0;
  for (const auto& [value, nodes] : said) all += nodes.size();
  for (const auto& [value, nodes] : said) {
    if (2 * nodes.size() > all) return value;
  }
  return std::nullopt;
}

Finding differs(const std::string& fact, const std::string& value) {
  return {.check = "drift." + fact,
          .severity = Severity::warning,
          .value = value,
          .rule = "the same on all nodes",
          .action = "install and configure the nodes alike"};
}

std::vector<Finding> evaluate_fact(const std::string& fact, const std::map<int, Hello>& present) {
  std::map<std::string, std::vector<std::string>> said;  // value -> nodes that report it
  std::map<std::string, std::string> by_node;
  for (const auto& [rank, hello] : present) {
    const auto found = hello.facts.find(fact);
    const std::string value = found == hello.facts.end() ? kAbsent : found->second;
    if (by_node.emplace(hello.node, value).second) said[value].push_back(hello.node);
  }
  if (said.size() < 2) return {};
  const auto agreed = majority(said);
  std::vector<Finding> findings;
  for (const auto& [value, nodes] : said) {
    if (value == agreed) continue;
    for (const auto& node : nodes) {
      Finding finding = differs(fact, value);
      finding.node = node;
      if (agreed) {
        finding.expected = *agreed;
        finding.evidence =
            fmt::format("{} of {} nodes have {}", said.at(*agreed).size(), by_node.size(), *agreed);
      } else {
        const auto other =
            std::find_if(said.begin(), said.end(),
                         [&own = value](const auto& entry) { return entry.first != own; });
        finding.peer = other->second.front();
        finding.evidence =
            fmt::format("{} has {}; there is no majority", other->second.front(), other->first);
      }
      findings.push_back(std::move(finding));
      if (!agreed) return findings;  // one finding is enough for both sides
    }
  }
  return findings;
}

}  // namespace

std::vector<Finding> evaluate_drift(const std::map<int, Hello>& present) {
  std::vector<Finding> findings;
  std::map<std::string, bool> facts;
  for (const auto& [rank, hello] : present) {
    for (const auto& [fact, value] : hello.facts) facts[fact] = true;
  }
  for (const auto& [fact, there] : facts) {
    auto more = evaluate_fact(fact, present);
    if (more.empty()) {
      more.push_back({.check = "drift." + fact,
                      .severity = Severity::ok,
                      .value = "the same on all nodes",
                      .rule = "the same on all nodes"});
    }
    for (auto& finding : more) findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<Finding> evaluate_clocks(const ClockOffsets& offsets,
                                     const std::map<int, Hello>& present) {
  std::vector<double> all;
  for (const auto& [rank, seconds] : offsets.first) all.push_back(seconds);
  if (all.empty()) return {};
  const double right = median(all);
  std::vector<Finding> findings;
  for (const auto& [rank, seconds] : offsets.first) {
    Finding finding{.check = "clock.offset",
                    .severity = Severity::ok,
                    .node = present.at(rank).node,
                    .value = seconds - right,
                    .unit = "s",
                    .expected = fmt::format("less than {:g} s", kMaxDriftSeconds),
                    .rule = "the clocks of all nodes agree"};
    if (std::abs(seconds - right) > kMaxDriftSeconds) {
      finding.severity = Severity::warning;
      finding.evidence = "compared with the median of all tasks";
      finding.action = "start chrony or another time service on this node";
    }
    findings.push_back(finding);
    const auto last = offsets.last.find(rank);
    if (last == offsets.last.end() || std::abs(last->second - seconds) <= kMaxDriftSeconds)
      continue;
    finding.check = "clock.jump";
    finding.severity = Severity::warning;
    finding.value = last->second - seconds;
    finding.rule = "a clock does not jump while the check runs";
    finding.evidence =
        "relative to the leader's clock, from the task's report to the end of the check";
    finding.action =
        "check the time service on this node; the durations of this check are not affected";
    findings.push_back(std::move(finding));
  }
  return findings;
}

bool all_arrived(const PathResult& result) noexcept {
  return result.arrived_at_a >= result.mtu_b && result.arrived_at_b >= result.mtu_a;
}

std::vector<Finding> evaluate_paths(const std::vector<std::string>& nodes,
                                    std::span<const PathResult> results) {
  std::vector<Pair> bad;
  std::vector<Pair> good;
  std::map<Pair, std::string> evidence;
  const auto name = [&nodes](int node) { return nodes[static_cast<std::size_t>(node)]; };
  for (const auto& r : results) {
    const bool silent = r.arrived_at_a == 0 && r.arrived_at_b == 0;
    if (all_arrived(r)) {
      good.push_back(r.pair);
      continue;
    }
    if (!silent) bad.push_back(r.pair);
    evidence[r.pair] = fmt::format(
        "{} sends up to {} bytes, at most {} reach {}; {} sends up to {}, at most {} reach {}",
        name(r.pair.a), r.mtu_a, r.arrived_at_b, name(r.pair.b), name(r.pair.b), r.mtu_b,
        r.arrived_at_a, name(r.pair.a));
  }
  Finding finding{.check = "net.path_mtu",
                  .severity = Severity::warning,
                  .value = "large packets are lost",
                  .expected = "packets with the MTU of the sender's interface arrive",
                  .rule = "datagrams that must not be fragmented, in both directions",
                  .action = "make the MTUs of interfaces and switches agree"};
  const Explanation who = explain(static_cast<int>(nodes.size()), bad, good);
  std::vector<Finding> findings;
  const auto add = [&](const std::string& node, const std::string& peer, std::string text) {
    finding.node = node;
    finding.peer = peer;
    finding.evidence = std::move(text);
    findings.push_back(finding);
  };
  if (who.everything) add("", "", "all pairs; " + evidence.begin()->second);
  for (const int node : who.nodes) {
    const auto about = std::find_if(bad.begin(), bad.end(), [node](const Pair& pair) {
      return pair.a == node || pair.b == node;
    });
    add(name(node), "", evidence.at(*about));
  }
  for (const auto& link : who.links) add(name(link.a), name(link.b), evidence.at(link));
  if (!findings.empty()) return findings;
  if (!good.empty() && evidence.empty()) {
    finding.severity = Severity::ok;
    finding.value = "whole";
    finding.action.clear();
  } else {
    finding.severity = Severity::unknown;
    finding.value = Value();
    finding.evidence = evidence.empty() ? "no pair was probed"
                                        : "no datagram arrived; " + evidence.begin()->second;
    finding.action = "allow UDP between the nodes";
  }
  finding.node.clear();
  finding.peer.clear();
  return {finding};
}

}  // namespace ddp::check
