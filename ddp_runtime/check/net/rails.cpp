#include "ddp_runtime/check/net/rails.h"

#include <fmt/format.h>

#include <set>

namespace ddp::check {
namespace {

// Whether every node has the rail as `one` has it.
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

}  // namespace

std::vector<std::string> alike_rails(const std::map<int, Hello>& present) {
  if (present.empty()) return {};
  std::map<double, std::vector<std::string>> by_speed;  // those of unknown speed at 0
  for (const auto& [name, rail] : present.begin()->second.rails) {
    if (rail.wire && all_have(name, rail, present)) {
      by_speed[rail.bytes_per_second.value_or(0)].push_back(name);
    }
  }
  if (by_speed.empty() || by_speed.rbegin()->second.size() < 2) return {};
  return by_speed.rbegin()->second;
}

std::vector<Finding> judge_rail(const std::string& rail, const std::map<int, Hello>& present) {
  Finding finding{.check = "rail.address",
                  .severity = Severity::ok,
                  .device = rail,
                  .value = "on all nodes",
                  .rule = "every node has an address on the rail"};
  std::vector<Finding> findings;
  std::set<std::string> named;
  for (const auto& [rank, hello] : present) {
    if (hello.rails.contains(rail) || !named.insert(hello.node).second) continue;
    findings.push_back(finding);
    findings.back().severity = Severity::critical;
    findings.back().node = hello.node;
    findings.back().value = "none";
    findings.back().expected = "up, with an address";
    findings.back().action = fmt::format("look at `ip addr show {}` there", rail);
  }
  if (findings.empty()) findings.push_back(finding);
  return findings;
}

RdmaPlan plan_rdma(const std::map<int, Hello>& present) {
  std::map<std::string, const Hello*> nodes;
  for (const auto& [rank, hello] : present) nodes.emplace(hello.node, &hello);
  std::size_t with_port = 0;
  for (const auto& [node, hello] : nodes) with_port += hello->rdma_port.empty() ? 0 : 1;
  RdmaPlan plan;
  if (with_port == 0) return plan;
  for (const auto& [node, hello] : nodes) {
    if (hello->rdma_measurable) ++plan.nodes;
    if (hello->rdma_port.empty() && 2 * with_port > nodes.size()) {
      plan.findings.push_back({.check = "verbs.port",
                               .severity = Severity::critical,
                               .node = node,
                               .value = "none active",
                               .expected = "an active RDMA port, as most nodes have",
                               .rule = "the nodes are alike",
                               .action = "look at `ddp-check node` and ibstat there"});
    } else if (!hello->rdma_port.empty() && !hello->rdma_measurable) {
      plan.findings.push_back({.check = "verbs.tool",
                               .node = node,
                               .device = hello->rdma_port,
                               .rule = "RDMA is measured where it is",
                               .evidence = "ib_write_bw is not there",
                               .action = "install perftest, or leave it out with --no-verbs"});
    }
  }
  return plan;
}

}  // namespace ddp::check
