// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/rails.h"

#include <fmt/format.h>

#include <set>

#include "base/hostlist.h"
#include "ddp_runtime/check/counted.h"

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

// Limit on notes about one kind of device, because the reasons are texts of other nodes.
constexpr std::size_t kMaxReasons = 4;

// A task's device of one kind.
struct NodeDevice {
  std::string name;  // empty if there is no device
  bool measurable = false;
  std::string problem;      // why the device, or a part of it, cannot be measured
  bool lacks_tool = false;  // only the measuring tool is missing
};

// What the findings and notes about one kind of device say.
struct DeviceTexts {
  std::string title;     // "RDMA"
  Finding lacking;       // without node and severity
  Finding unmeasurable;  // without node and severity
};

class DevicePlanner {
 public:
  DevicePlanner(const DeviceTexts& texts, Severity missing_tool)
      : texts_(texts), missing_tool_(missing_tool) {}

  DevicePlan plan(const std::map<std::string, NodeDevice>& nodes) {
    std::size_t equipped = 0;
    for (const auto& [node, device] : nodes) equipped += device.name.empty() ? 0 : 1;
    for (const auto& [node, device] : nodes) {
      if (device.measurable) {
        ++plan_.nodes;
        if (!device.problem.empty()) untested_[device.problem].push_back(node);
      } else if (!device.name.empty()) {
        add_unmeasurable(node, device);
      } else if (2 * equipped > nodes.size()) {
        add_lacking(node, device);
      } else if (!device.problem.empty()) {
        untested_[device.problem].push_back(node);
      }
    }
    add_notes();
    return std::move(plan_);
  }

 private:
  void add_unmeasurable(const std::string& node, const NodeDevice& device) {
    Finding finding = texts_.unmeasurable;
    finding.severity = device.lacks_tool ? missing_tool_ : Severity::unknown;
    finding.node = node;
    finding.device = device.name;
    if (!device.problem.empty()) finding.evidence = device.problem;
    if (finding.severity == Severity::ok) {
      untested_[finding.evidence + "; " + finding.action].push_back(node);
    }
    plan_.findings.push_back(std::move(finding));
  }

  void add_lacking(const std::string& node, const NodeDevice& device) {
    Finding finding = texts_.lacking;
    finding.severity = Severity::critical;
    finding.node = node;
    finding.rule = "the nodes are alike";
    finding.evidence = device.problem;
    plan_.findings.push_back(std::move(finding));
  }

  void add_notes() {
    std::size_t more = 0;
    for (const auto& [reason, nodes] : untested_) {
      if (plan_.notes.size() == kMaxReasons) {
        more += nodes.size();
      } else {
        plan_.notes.push_back(fmt::format("{} was not tested on {}: {}", texts_.title,
                                          compress_hostlist(nodes), reason));
      }
    }
    if (more == 0) return;
    plan_.notes.push_back(fmt::format("{} was not tested on {}, for other reasons", texts_.title,
                                      counted(more, "more node")));
  }

  const DeviceTexts& texts_;
  Severity missing_tool_;
  DevicePlan plan_;
  std::map<std::string, std::vector<std::string>> untested_;  // nodes by reason
};

template <class DeviceOf>
std::map<std::string, NodeDevice> devices_by_node(const std::map<int, Hello>& present,
                                                  const DeviceOf& device_of) {
  std::map<std::string, NodeDevice> nodes;
  for (const auto& [rank, hello] : present) nodes.emplace(hello.node, device_of(hello));
  return nodes;
}

std::string name_of_ports(const std::vector<RdmaPort>& ports) {
  if (ports.empty()) return {};
  return ports.size() == 1 ? ports.front().name : counted(ports.size(), "port");
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

DevicePlan plan_rdma(const std::map<int, Hello>& present, Severity missing_tool) {
  const DeviceTexts texts{"RDMA",
                          {.check = "verbs.port",
                           .value = "none usable",
                           .expected = "an active RDMA port, as most nodes have",
                           .action = "see `ddp-check node` and ibstat on this node"},
                          {.check = "verbs.tool",
                           .rule = "RDMA is tested on nodes that have it",
                           .evidence = "ib_write_bw is not installed",
                           .action = "install perftest, or skip RDMA with --no-verbs"}};
  const auto nodes = devices_by_node(present, [](const Hello& hello) {
    const bool lacks_tool = !hello.rdma_ports.empty() && !hello.rdma_measurable;
    return NodeDevice{name_of_ports(hello.rdma_ports), hello.rdma_measurable,
                      lacks_tool ? "" : hello.rdma_untested, lacks_tool};
  });
  return DevicePlanner(texts, missing_tool).plan(nodes);
}

DevicePlan plan_nccl(const std::map<int, Hello>& present, Severity missing_tool) {
  const DeviceTexts texts{
      "NCCL",
      {.check = "nccl.gpu",
       .value = "none",
       .expected = "GPUs, as most nodes have",
       .action = "see `ddp-check node` and nvidia-smi on this node"},
      {.check = "nccl.library",
       .rule = "NCCL is tested on nodes that have GPUs",
       .action = "load the module that provides NCCL, set its path with --nccl, or skip it with "
                 "--no-nccl"}};
  const auto nodes = devices_by_node(present, [](const Hello& hello) {
    const bool usable = hello.gpus > 0 && !hello.nccl_version.empty();
    const bool any = hello.gpus > 0 || !hello.nccl_problem.empty();
    return NodeDevice{any ? fmt::format("{} GPUs", hello.gpus) : "", usable, hello.nccl_problem,
                      hello.gpus > 0 && !usable};
  });
  return DevicePlanner(texts, missing_tool).plan(nodes);
}

}  // namespace ddp::check
