// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/interface_links.h"

#include <fmt/format.h>

#include <algorithm>

#include "ddp_runtime/check/node/data_interfaces.h"

namespace ddp::check {
namespace {

using fabric::ComputePorts;
using fabric::NetworkInterface;
using fabric::Node;

Finding with_link(const std::string& name) {
  return {.check = "interface.link",
          .severity = Severity::ok,
          .device = name,
          .value = "up",
          .rule = "an enabled interface has a link"};
}

Finding without_link(const NetworkInterface& interface) {
  Finding finding = with_link(interface.name);
  finding.severity = Severity::warning;
  finding.value = "no link";
  finding.expected = "a link";
  finding.evidence = interface.master.empty()
                         ? "enabled, but without carrier"
                         : fmt::format("{} runs on its other ports only", interface.master);
  finding.action = "check cable, transceiver and switch port";
  return finding;
}

// Interfaces that are enabled, unplugged and unused; nothing is wrong if another one runs.
Finding free_ones(const std::vector<std::string>& names, bool any_runs) {
  constexpr std::size_t kMost = 8;
  Finding finding = with_link("");
  finding.severity = any_runs ? Severity::ok : Severity::warning;
  finding.value = fmt::format("{} without a link", names.size());
  std::string list;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) {
    list += (i > 0 ? ", " : "") + names[i];
  }
  if (names.size() > kMost) list += fmt::format(" and {} more", names.size() - kMost);
  finding.evidence = fmt::format("{}: enabled, but without carrier and without a network", list);
  if (!any_runs) {
    finding.expected = "a link";
    finding.action = "check cable, transceiver and switch port";
  }
  return finding;
}

// Returns no finding for an interface that runs.
std::vector<Finding> required_finding(const Node& node, const std::string& name) {
  const NetworkInterface* interface = node.interface(name);
  if (interface != nullptr && interface->running) return {};
  Finding finding = with_link(name);
  finding.severity = Severity::critical;
  finding.value = interface == nullptr ? "missing" : interface->up ? "no link" : "disabled";
  finding.expected = "a link";
  finding.rule = "an interface that --interface names runs";
  finding.evidence = interface == nullptr ? "this node does not have it" : "it is not running";
  finding.action = fmt::format("check `ip link show {}`, the cable and the name", name);
  return {finding};
}

}  // namespace

std::vector<Finding> evaluate_links(const Node& node, const ComputePorts& compute,
                                    const std::vector<std::string>& required) {
  std::vector<Finding> findings;
  std::vector<std::string> unused;
  bool any_runs = false;
  for (const auto& interface : node.interfaces) {
    if (!is_on_a_wire(interface) || !interface.up) continue;
    any_runs = any_runs || interface.running;
    if (interface.running) {
      findings.push_back(with_link(interface.name));
    } else if (is_in_use(node, interface) || is_of_a_rail(node, compute, interface)) {
      findings.push_back(without_link(interface));
    } else {
      unused.push_back(interface.name);
    }
  }
  if (!unused.empty()) findings.push_back(free_ones(unused, any_runs));
  for (const auto& name : required) {
    for (auto& finding : required_finding(node, name)) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace ddp::check
