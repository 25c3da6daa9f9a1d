// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/evaluate_leader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/socket.h"
#include "ddp_runtime/check/findings/resolve.h"
#include "ddp_runtime/check/net/step/node_table.h"

namespace ddp::check {
namespace {

constexpr std::size_t kMaxOwnAddresses = 4;

struct Agreed {
  std::string addresses;
  std::size_t count = 0;
};

std::string addresses_text(const Hello& hello) {
  return hello.leader_addresses.empty() ? "nothing"
                                        : fmt::format("{}", fmt::join(hello.leader_addresses, " "));
}

Agreed most_common(const std::map<std::string, std::size_t>& counts) {
  const auto most =
      std::max_element(counts.begin(), counts.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? Agreed{} : Agreed{most->first, most->second};
}

// The leader's own node may resolve its name to another address, if other nodes can use that
// address. A task with another MASTER_ADDR asks for another name.
std::vector<Finding> evaluate_leader_name(const JobStep& step,
                                          const std::map<int, Hello>& present) {
  std::map<std::string, std::size_t> counts;
  for (const auto& [rank, hello] : present) {
    if (hello.leader_host == step.leader_host) ++counts[addresses_text(hello)];
  }
  const auto [agreed, count] = most_common(counts);
  Finding finding{
      .check = "name.leader",
      .severity = Severity::warning,
      .device = step.leader_host,
      .expected = agreed,
      .rule = "the leader's name resolves to the same address on every node",
      .evidence = fmt::format("{} of {} tasks resolve it to {}", count, present.size(), agreed),
      .action = "make /etc/hosts and DNS agree on all nodes"};
  std::vector<Finding> findings;
  for (const auto& [rank, hello] : present) {
    const std::string found = addresses_text(hello);
    if (hello.leader_host != step.leader_host || found == agreed) continue;
    finding.node = hello.node;
    finding.value = found;
    findings.push_back(finding);
  }
  if (!findings.empty()) return findings;
  return {{.check = finding.check,
           .severity = Severity::ok,
           .device = finding.device,
           .value = agreed,
           .rule = finding.rule}};
}

// The addresses that other nodes found under the name that rank 0 uses, and by which they reached
// rank 0: the most common ones, and the number of these nodes.
Agreed addresses_of_others(const Hello& leader, const std::map<int, Hello>& present) {
  std::map<std::string, std::size_t> counts;
  std::set<std::string> seen{leader.node};
  for (const auto& [rank, hello] : present) {
    if (hello.leader_host == leader.leader_host && seen.insert(hello.node).second) {
      ++counts[addresses_text(hello)];
    }
  }
  return most_common(counts);
}

std::vector<std::string> own_addresses(const Hello& hello) {
  std::vector<std::string> addresses;
  for (const auto& [name, rail] : hello.rails) {
    if (!is_loopback(rail.address)) addresses.push_back(rail.address);
  }
  if (addresses.size() > kMaxOwnAddresses) addresses.resize(kMaxOwnAddresses);
  return addresses;
}

// What rank 0's node knows about the leader's name and about itself.
std::string facts_about(const Hello& leader) {
  std::string text;
  if (!is_address(leader.leader_host)) {
    text = leader.leader_addresses.empty()
               ? fmt::format("; {} does not find an address of this name: {}", leader.node,
                             leader.leader_lookup_error)
               : fmt::format("; {} resolves this name to {}", leader.node, addresses_text(leader));
  }
  const auto own = own_addresses(leader);
  if (own.empty()) return text;
  return text + fmt::format("; {} has the addresses {}", leader.node, fmt::join(own, " "));
}

bool is_name_of(const std::string& host, const std::string& node) {
  return host == node || host.substr(0, host.find('.')) == node.substr(0, node.find('.'));
}

// What to do if the node of rank 0 is not to blame.
std::string remedy(const Hello& leader) {
  const auto& found = leader.leader_addresses;
  for (const auto& own : own_addresses(leader)) {
    if (std::find(found.begin(), found.end(), own) == found.end()) continue;
    return fmt::format("check the firewall of {}: the address is right", leader.node);
  }
  const auto& host = leader.leader_host;
  if (!is_address(host) && (is_name_of(host, leader.node) || is_name_of(host, leader.host))) {
    return fmt::format(
        "correct the name service (DNS, /etc/hosts), or set MASTER_ADDR to an address of {}",
        leader.node);
  }
  return fmt::format(
      "MASTER_ADDR is {}: unset it, so that srun --ddp sets it, or set it to a name or address of "
      "{}, the node of rank 0",
      host, leader.node);
}

// Whether most nodes find rank 0 under the same name, but at another address than its own node.
bool is_alone_in_error(const JobStep& step, const Hello& leader, const Agreed& others,
                       const std::map<int, Hello>& present) {
  return 2 * others.count > node_table(step, present).size() &&
         others.addresses != addresses_text(leader);
}

std::vector<Finding> evaluate_lost_leader(const JobStep& step,
                                          const std::map<int, Hello>& present) {
  if (node_of_lost_leader(present).empty()) return {};
  const Hello& leader = present.at(0);
  Finding finding{.check = "net.leader_address",
                  .severity = Severity::critical,
                  .device = "MASTER_ADDR=" + leader.leader_host,
                  .value = "not reachable",
                  .expected = "the address of rank 0",
                  .rule = "rank 0 can reach itself by the name that the other ranks use"};
  finding.evidence = fmt::format("rank 0 cannot connect to {} port {}{}", leader.leader_host,
                                 step.leader_port, facts_about(leader));
  const Agreed others = addresses_of_others(leader, present);
  if (!is_alone_in_error(step, leader, others, present)) {
    finding.action = remedy(leader);
    return {finding};
  }
  finding.node = leader.node;
  finding.device = leader.leader_host;
  finding.evidence += fmt::format("; {} of {} nodes resolve it to {}, where they reach rank 0",
                                  others.count, node_table(step, present).size(), others.addresses);
  finding.action = "correct the name in /etc/hosts of this node, or the name service it asks";
  return {finding};
}

}  // namespace

std::string node_of_lost_leader(const std::map<int, Hello>& present) {
  const auto leader = present.find(0);
  return leader == present.end() || !leader->second.by_loopback ? "" : leader->second.node;
}

bool is_leaders_name_wrong(const JobStep& step, const std::map<int, Hello>& present) {
  if (node_of_lost_leader(present).empty()) return false;
  const Hello& leader = present.at(0);
  return !is_alone_in_error(step, leader, addresses_of_others(leader, present), present);
}

std::vector<Finding> evaluate_leader(const JobStep& step, const std::map<int, Hello>& present) {
  std::vector<Finding> findings = evaluate_leader_name(step, present);
  for (auto& finding : evaluate_lost_leader(step, present)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace ddp::check
