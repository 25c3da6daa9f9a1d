// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/rails.h"

#include <fmt/format.h>

#include <set>

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

// A task's device of one kind.
struct NodeDevice {
  std::string name;  // empty if there is no device
  bool measurable = false;
  std::string problem;  // why the device cannot be measured
};

// `lacking` and `unmeasurable` are templates: findings without node and severity.
template <class DeviceOf>
DevicePlan plan_devices(const std::map<int, Hello>& present, const Finding& lacking,
                        const Finding& unmeasurable, const DeviceOf& device_of) {
  std::map<std::string, NodeDevice> nodes;
  for (const auto& [rank, hello] : present) nodes.emplace(hello.node, device_of(hello));
  std::size_t equipped = 0;
  for (const auto& [node, device] : nodes) equipped += device.name.empty() ? 0 : 1;
  DevicePlan plan;
  if (equipped == 0) return plan;
  for (const auto& [node, device] : nodes) {
    if (device.measurable) {
      ++plan.nodes;
    } else if (!device.name.empty()) {
      plan.findings.push_back(unmeasurable);
      plan.findings.back().node = node;
      plan.findings.back().device = device.name;
      if (!device.problem.empty()) plan.findings.back().evidence = device.problem;
    } else if (2 * equipped > nodes.size()) {
      plan.findings.push_back(lacking);
      plan.findings.back().severity = Severity::critical;
      plan.findings.back().node = node;
      plan.findings.back().rule = "the nodes are alike";
    }
  }
  return plan;
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
  std::vector<Finding> findings;
  std::set<std::string> named;
  for (const auto& [rank, hello] : present) {
    if (hello.rails.contains(rail) || !named.insert(hello.node).second) continue;
    findings.push_back(finding);
    findings.back().severity = Severity::critical;
    findings.back().node = hello.node;
    findings.back().value = "none";
    findings.back().expected = "up, with an address";
    findings.back().action = fmt::format("see `ip addr show {}` on this node", rail);
  }
  if (findings.empty()) findings.push_back(finding);
  return findings;
}

DevicePlan plan_rdma(const std::map<int, Hello>& present) {
  Finding lacking{.check = "verbs.port",
                  .value = "none active",
                  .expected = "an active RDMA port, as most nodes have",
                  .action = "see `ddp-check node` and ibstat on this node"};
  Finding unmeasurable{.check = "verbs.tool",
                       .rule = "RDMA is tested on nodes that have it",
                       .evidence = "ib_write_bw is not installed",
                       .action = "install perftest, or skip RDMA with --no-verbs"};
  return plan_devices(present, lacking, unmeasurable, [](const Hello& hello) {
    return NodeDevice{hello.rdma_port, hello.rdma_measurable, {}};
  });
}

DevicePlan plan_nccl(const std::map<int, Hello>& present) {
  Finding lacking{.check = "nccl.gpu",
                  .value = "none",
                  .expected = "GPUs, as most nodes have",
                  .action = "see `ddp-check node` and nvidia-smi on this node"};
  Finding unmeasurable{.check = "nccl.library",
                       .rule = "NCCL is tested on nodes that have GPUs",
                       .action =
                           "load the module that provides NCCL, set its path with --nccl, or skip "
                           "it with --no-nccl"};
  return plan_devices(present, lacking, unmeasurable, [](const Hello& hello) {
    const bool usable = hello.gpus > 0 && !hello.nccl_version.empty();
    const bool any = hello.gpus > 0 || !hello.nccl_problem.empty();
    return NodeDevice{any ? fmt::format("{} GPUs", hello.gpus) : "", usable, hello.nccl_problem};
  });
}

}  // namespace ddp::check
