// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/device_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/hostlist.h"
#include "base/text.h"
#include "ddp_runtime/check/net/evaluate/another_kind.h"

namespace ddp::check {
namespace {

// Limit on notes about one kind of device, because the reasons are texts of other nodes.
constexpr std::size_t kMaxReasons = 4;

// A task's device of one kind.
struct NodeDevice {
  std::string name;  // empty if there is no device
  bool measurable = false;
  std::string problem;      // why the device, or a part of it, cannot be measured
  bool lacks_tool = false;  // only the measuring tool is missing
  int processors = 0;       // CPUs of the node
};
using NodeDevices = std::map<std::string, NodeDevice>;  // by node

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

  DevicePlan plan(const NodeDevices& nodes) {
    std::size_t equipped = 0;
    for (const auto& [node, device] : nodes) equipped += device.name.empty() ? 0 : 1;
    const bool most_are_equipped = 2 * equipped > nodes.size();
    if (equipped > 0 && !most_are_equipped) add_minority(nodes, 2 * equipped == nodes.size());
    for (const auto& [node, device] : nodes) {
      if (device.measurable) {
        if (++plan_.nodes == 1) first_ = node;
        if (!device.problem.empty()) untested_[device.problem].push_back(node);
      } else if (!device.name.empty()) {
        add_unmeasurable(node, device);
      } else if (most_are_equipped) {
        add_lacking(node, device,
                    sign_of_another_kind({.processors = device.processors,
                                          .usual_processors = usual_processors(nodes),
                                          .as_few = nodes.size() - equipped,
                                          .nodes = nodes.size()}));
      } else if (!device.problem.empty()) {
        untested_[device.problem].push_back(node);
      }
    }
    if (plan_.nodes == 1) untested_["no other node can be measured with it"].push_back(first_);
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

  void add_lacking(const std::string& node, const NodeDevice& device,
                   const std::string& another_kind) {
    Finding finding = texts_.lacking;
    finding.severity = another_kind.empty() ? Severity::critical : Severity::warning;
    finding.node = node;
    finding.rule = "the nodes are alike";
    const bool both = !device.problem.empty() && !another_kind.empty();
    finding.evidence = device.problem + (both ? "; " : "") + another_kind;
    plan_.findings.push_back(std::move(finding));
  }

  // Names no node: neither those with the devices nor those without need be the wrong ones.
  void add_minority(const NodeDevices& nodes, bool half) {
    std::map<std::string, std::vector<std::string>> nodes_by_device;
    for (const auto& [node, device] : nodes) nodes_by_device[device.name].push_back(node);
    Finding finding = texts_.lacking;
    finding.severity = Severity::warning;
    finding.value = "not on all nodes";
    finding.expected = "the same on all nodes";
    finding.rule = "the nodes are alike";
    for (const auto& [device, those] : nodes_by_device) {
      finding.evidence +=
          fmt::format("{} on {}; ", device.empty() ? "none" : device, compress_hostlist(those));
    }
    finding.evidence += half ? "neither is the majority" : "only a minority has any";
    finding.action =
        "run the job on nodes of one kind, or see `ddp-check node` on those that should have them";
    plan_.findings.push_back(std::move(finding));
  }

  // The most common number of CPUs of the nodes that have devices.
  static int usual_processors(const NodeDevices& nodes) {
    std::map<int, int> counts;
    for (const auto& [node, device] : nodes) {
      if (!device.name.empty()) ++counts[device.processors];
    }
    return std::max_element(counts.begin(), counts.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
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
  std::string first_;  // the first node that can be measured
  DevicePlan plan_;
  std::map<std::string, std::vector<std::string>> untested_;  // nodes by reason
};

template <class DeviceOf>
NodeDevices devices_by_node(const std::map<int, Hello>& present, const DeviceOf& device_of) {
  NodeDevices nodes;
  for (const auto& [rank, hello] : present) {
    nodes.emplace(hello.node, device_of(hello)).first->second.processors = hello.processors;
  }
  return nodes;
}

std::string name_of_ports(const std::vector<RdmaPort>& ports) {
  if (ports.empty()) return {};
  return ports.size() == 1 ? ports.front().name : counted(ports.size(), "port");
}

}  // namespace

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
