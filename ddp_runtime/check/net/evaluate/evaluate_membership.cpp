// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/evaluate_membership.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/socket.h"
#include "ddp_runtime/check/findings/short_list.h"
#include "ddp_runtime/check/net/evaluate/evaluate_leader.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxNamesOfSilent = 8;
constexpr const char* kSeeLeaderAddress = "see the finding net.leader_address";

std::string way_to_leader(const JobStep& step) {
  return fmt::format("{} port {}", step.leader_host, step.leader_port);
}

Finding missing(const JobStep& step, std::chrono::milliseconds timeout) {
  return {.check = "net.missing",
          .severity = Severity::critical,
          .value = "missing",
          .expected =
              fmt::format("a report within {:g} s", std::chrono::duration<double>(timeout).count()),
          .rule = "every task of the step reports to the leader",
          .action = fmt::format("check that the node is up and can reach {}; exclude it",
                                way_to_leader(step))};
}

// Missing ranks, for launchers that do not say on which nodes the ranks run.
std::vector<Finding> missing_ranks(const JobStep& step, const std::map<int, Hello>& present,
                                   std::chrono::milliseconds timeout) {
  std::string ranks;
  for (int rank = 0; rank < step.size; ++rank) {
    if (!present.contains(rank)) ranks += fmt::format("{}{}", ranks.empty() ? "" : ",", rank);
  }
  if (ranks.empty()) return {};
  Finding finding = missing(step, timeout);
  finding.device = "rank " + ranks;
  finding.evidence = "the launcher does not say on which nodes the tasks should run";
  return {finding};
}

// If more nodes are silent than not, a fault of rank 0's own link or of the step's start is more
// likely than that many faulty nodes.
bool outnumber(const std::vector<std::string>& silent, std::size_t nodes) {
  return silent.size() >= 2 && 2 * silent.size() > nodes;
}

// Returns "4 of 5 nodes: n2, n3, n4, n5". Names only a few, because there may be thousands.
std::string silent_of_all(const std::vector<std::string>& silent, std::size_t nodes) {
  return fmt::format("{} of {} nodes: {}", silent.size(), nodes,
                     short_list(silent, kMaxNamesOfSilent, ", "));
}

std::string action_at_leader(const JobStep& step) {
  return fmt::format(
      "check the node of rank 0 first ({}), its link and firewall, that its address is one that "
      "all "
      "nodes reach, and that all tasks were started",
      way_to_leader(step));
}

// Returns the most common text and its count.
std::pair<std::string, int> majority(const std::map<std::string, int>& counts) {
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return {most->first, most->second};
}

// The first node whose interface has this MTU.
std::string first_with(const std::map<int, Hello>& present, const std::string& mtu) {
  for (const auto& [rank, hello] : present) {
    if (hello.mtu && fmt::format("{}", *hello.mtu) == mtu && !is_loopback(hello.address)) {
      return hello.node;
    }
  }
  return {};
}

std::vector<Finding> evaluate_mtu(const std::map<int, Hello>& present) {
  std::map<std::string, int> counts;
  for (const auto& [rank, hello] : present) {
    if (hello.mtu && !is_loopback(hello.address)) ++counts[fmt::format("{}", *hello.mtu)];
  }
  if (counts.size() < 2) return {};
  const auto [agreed, count] = majority(counts);
  int tasks = 0;
  for (const auto& [mtu, number] : counts) tasks += number;
  std::vector<Finding> findings;
  for (const auto& [rank, hello] : present) {
    // The leader's node connects to itself over loopback, which has a different MTU.
    if (!hello.mtu || fmt::format("{}", *hello.mtu) == agreed || is_loopback(hello.address)) {
      continue;
    }
    findings.push_back(
        {.check = "net.mtu",
         .severity = Severity::warning,
         .node = hello.node,
         .device = hello.interface,
         .value = static_cast<double>(*hello.mtu),
         .unit = "bytes",
         .expected = agreed + " bytes",
         .rule = "the interfaces of all nodes have the same MTU",
         .evidence = fmt::format("{} of {} tasks have {}", count, present.size(), agreed),
         .action = "make the MTUs agree; large packets may be lost"});
    if (2 * count > tasks) continue;
    // Without a majority, either of the two may be wrong.
    findings.back().peer = findings.back().node;
    findings.back().node = first_with(present, agreed);
    return {findings.back()};
  }
  return findings;
}

}  // namespace

std::vector<Finding> evaluate_roll_call(const JobStep& step, const std::map<int, Hello>& present,
                                        std::chrono::milliseconds timeout,
                                        const std::vector<std::string>& refusals) {
  std::vector<Finding> findings;
  if (present.size() == static_cast<std::size_t>(step.size)) {
    findings.push_back({.check = "net.roll_call",
                        .severity = Severity::ok,
                        .value = static_cast<double>(present.size()),
                        .unit = "tasks",
                        .expected = fmt::format("{} tasks", step.size),
                        .rule = "every task of the step reports to the leader"});
  }
  const auto nodes = node_table(step, present);
  std::vector<std::string> silent;
  for (const auto& node : nodes) {
    if (node.ranks.empty() && node.expected_tasks > 0) silent.push_back(node.name);
  }
  // If no other node reports, as one of two, their way to rank 0 may be wrong on all of them.
  const bool all_others_are_silent = !silent.empty() && silent.size() + 1 == nodes.size();
  const std::string lost_leader = node_of_lost_leader(present);
  const bool name_is_wrong = is_leaders_name_wrong(step, present) && !silent.empty();
  const bool most_are_silent =
      all_others_are_silent || name_is_wrong || outnumber(silent, nodes.size());
  if (most_are_silent) {
    Finding finding = missing(step, timeout);
    finding.evidence =
        silent_of_all(silent, nodes.size()) +
        (name_is_wrong ? "; rank 0 cannot connect to itself either"
                       : "; so many that rank 0's node may be the one that is cut off");
    finding.action = name_is_wrong ? kSeeLeaderAddress : action_at_leader(step);
    findings.push_back(finding);
  }
  for (const auto& node : nodes) {
    const auto reported = static_cast<int>(node.ranks.size());
    if (reported >= node.expected_tasks || (reported == 0 && most_are_silent)) continue;
    Finding finding = missing(step, timeout);
    finding.evidence = fmt::format("{} of {} tasks reported", reported, node.expected_tasks);
    if (node.name == lost_leader) {
      finding.evidence = fmt::format("{} from {}, where rank 0 cannot connect to itself either",
                                     finding.evidence, node.name);
      finding.action = kSeeLeaderAddress;
    } else {
      finding.node = node.name;
    }
    findings.push_back(finding);
  }
  if (step.nodes.empty()) {
    for (auto& finding : missing_ranks(step, present, timeout)) findings.push_back(finding);
  }
  if (!refusals.empty()) {
    findings.push_back(
        {.check = "net.refused",
         .severity = Severity::warning,
         .value = static_cast<double>(refusals.size()),
         .unit = "tasks",
         .expected = "none",
         .rule = "only tasks of this step report to this port, each once",
         .evidence = refusals.front(),
         .action = "give each job step its own port, and use the same version on all nodes"});
  }
  return findings;
}

Finding evaluate_no_pair(const JobStep& step) {
  Finding finding{.check = "net.pairs",
                  .severity = Severity::unknown,
                  .expected = "at least two nodes",
                  .rule = "the network is measured between nodes",
                  .evidence = "only one node reported, and a pair needs two",
                  .action =
                      "run the check on several nodes, for example `srun --mpi=pmix --ddp -N2 "
                      "--ntasks-per-node=1 ddp-check net`"};
  if (step.job_nodes != 1 || step.nodes.size() != 1 || step.pretended) return finding;
  finding.severity = Severity::ok;
  finding.value = "none";
  finding.expected.clear();
  finding.rule = "a job of one node sends nothing over the network";
  finding.evidence = "the job has one node";
  finding.action.clear();
  return finding;
}

std::vector<Finding> evaluate_known_bad(const std::vector<std::string>& bad,
                                        const std::vector<std::string>& nodes) {
  std::vector<Finding> findings;
  for (const auto& node : bad) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) continue;
    findings.push_back({.check = "node.known_bad",
                        .severity = Severity::critical,
                        .node = node,
                        .value = "bad",
                        .rule = "a node that another check rejected stays rejected",
                        .evidence = "named by --known-bad",
                        .action = "run `ddp-check node` on this node"});
  }
  return findings;
}

std::vector<Finding> evaluate_lost(const JobStep& step, const std::vector<NodeEntry>& nodes,
                                   std::span<const LostTask> lost) {
  std::vector<std::string> silent;
  for (const auto& node : nodes) {
    const bool is_lost = std::any_of(
        lost.begin(), lost.end(), [&node](const LostTask& task) { return task.node == node.name; });
    if (is_lost || node.ranks.empty()) silent.push_back(node.name);
  }
  const Finding answer{.check = "net.answer",
                       .severity = Severity::critical,
                       .value = "no answer",
                       .expected = "an answer",
                       .rule = "every task answers until the end of the check"};
  const auto what_happened = [](const LostTask& task) {
    return fmt::format("rank {}, during {}: {}", task.rank, task.during, task.why);
  };
  std::vector<Finding> findings;
  if (!lost.empty() && outnumber(silent, nodes.size())) {
    Finding finding = answer;
    finding.evidence =
        fmt::format("{}; so many that rank 0's node may be the one that is cut off; {}",
                    silent_of_all(silent, nodes.size()), what_happened(lost.front()));
    finding.action = action_at_leader(step);
    return {finding};
  }
  for (const auto& task : lost) {
    Finding finding = answer;
    finding.node = task.node;
    finding.evidence = what_happened(task);
    finding.action = "look for crashed and hung processes on this node, or exclude it";
    findings.push_back(finding);
  }
  return findings;
}

std::vector<Finding> evaluate_suspension(double seconds) {
  if (seconds <= 0) return {};
  const Finding finding{
      .check = "net.suspended",
      .severity = Severity::unknown,
      .value = seconds,
      .unit = "s",
      .expected = "0 s",
      .rule = "the process of rank 0 runs without interruption",
      .evidence = fmt::format(
          "rank 0 was suspended for {:.0f} s; no other node is to blame for waiting", seconds),
      .action = "rerun the check"};
  return {finding};
}

std::vector<Finding> evaluate_reports(const JobStep& step, const std::map<int, Hello>& present) {
  if (present.empty()) return {};
  std::vector<Finding> findings = evaluate_leader(step, present);
  for (auto& finding : evaluate_mtu(present)) findings.push_back(finding);
  return findings;
}

}  // namespace ddp::check
