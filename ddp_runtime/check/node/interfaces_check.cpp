// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/interfaces_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/text.h"
#include "ddp_runtime/check/node/data_interfaces.h"
#include "ddp_runtime/check/node/interface_links.h"

namespace ddp::check {
namespace {

using fabric::InterfaceKind;
using fabric::NetworkInterface;
using fabric::Node;

Finding a_way_out(const Node& node) {
  Finding finding{.check = "interface.any",
                  .severity = Severity::ok,
                  .rule = "some interface besides loopback is running"};
  std::string running;
  for (const auto& interface : node.interfaces) {
    if (!interface.running || interface.kind == InterfaceKind::loopback) continue;
    running += (running.empty() ? "" : " ") + interface.name;
  }
  for (const auto& interface : node.unlisted) {
    running += (running.empty() ? "" : " ") + quote_for_display(interface.name);
  }
  finding.value = running.empty() ? "none" : running;
  if (running.empty()) {
    finding.severity = Severity::critical;
    finding.expected = "at least one";
    finding.evidence = "no interface besides loopback is up with a link";
    finding.action = "check `ip link` and the cable";
  }
  return finding;
}

std::vector<Finding> name_findings(const Node& node) {
  std::vector<Finding> findings;
  for (const auto& interface : node.unlisted) {
    findings.push_back({.check = "interface.name",
                        .severity = Severity::warning,
                        .device = quote_for_display(interface.name),
                        .value = "unusable",
                        .expected = "printable ASCII without commas",
                        .rule = "lists of interfaces can contain the name",
                        .evidence = "no variable such as NCCL_SOCKET_IFNAME can name it, so no job "
                                    "is told to use it",
                        .action = "rename it in a .link file of systemd-udevd"});
  }
  return findings;
}

// The ports of a bond that spreads its traffic should have the same speed, so the fastest port
// determines the expected speed. A bond that uses one port at a time may have a slower spare.
int fastest_sibling(const Node& node, const NetworkInterface& interface) {
  const NetworkInterface* bond = node.interface(interface.master);
  if (bond == nullptr || bond->kind != InterfaceKind::bond) return 0;
  if (bond->bond_mode.starts_with("active-backup") || bond->bond_mode.starts_with("broadcast")) {
    return 0;
  }
  int fastest = 0;
  for (const auto& other : node.interfaces) {
    if (other.master == interface.master && is_on_a_wire(other)) {
      fastest = std::max(fastest, other.speed_mbps.value_or(0));
    }
  }
  return fastest;
}

// A slow port of a bond is a fault only if the bond is known to spread its traffic.
Severity severity_of(const Node& node, const NetworkInterface& interface, int wanted,
                     bool is_requested) {
  const NetworkInterface* bond = node.interface(interface.master);
  const bool spreads = bond != nullptr && (bond->bond_mode.starts_with("802.3ad") ||
                                           bond->bond_mode.starts_with("balance-"));
  const bool is_half = *interface.speed_mbps <= wanted - *interface.speed_mbps;
  return is_half && (is_requested || spreads) ? Severity::critical : Severity::warning;
}

// No findings if neither the driver nor the administrator provides a speed, because there is
// nothing to compare. `requested`: the minimum speed, 0 if there is none.
std::vector<Finding> speed_findings(const Node& node, const NetworkInterface& interface,
                                    int requested) {
  if (!interface.speed_mbps && requested == 0) return {};
  const int sibling = fastest_sibling(node, interface);
  const int wanted = std::max(requested, sibling);
  Finding finding{.check = "interface.speed",
                  .severity = Severity::ok,
                  .device = interface.name,
                  .unit = "Mb/s",
                  .rule = sibling > requested ? "as fast as the other ports of " + interface.master
                                              : "at least the requested speed"};
  if (wanted > 0) finding.expected = fmt::format("at least {} Mb/s", wanted);
  if (!interface.speed_mbps) {
    finding.severity = Severity::unknown;
    finding.evidence = "the driver reports no speed";
    finding.action = "measure it with `ddp-check net`";
    return {finding};
  }
  finding.value = static_cast<double>(*interface.speed_mbps);
  if (*interface.speed_mbps < wanted) {
    finding.severity = severity_of(node, interface, wanted, requested >= wanted);
    finding.evidence = "the link negotiated a lower speed";
    finding.action = "check the cable, the transceiver and `ethtool " + interface.name + "`";
  } else if (interface.full_duplex == false) {
    finding.severity = Severity::warning;
    finding.evidence = "the link negotiated half duplex";
    finding.action = "check the switch port's settings";
  }
  return {finding};
}

// `requested`: 0 if no MTU is.
std::vector<Finding> mtu_findings(const Node& node, const NetworkInterface& interface,
                                  int requested) {
  Finding finding{.check = "interface.mtu",
                  .severity = Severity::ok,
                  .device = interface.name,
                  .unit = "bytes",
                  .rule = "the requested MTU, which the underlying interface can carry"};
  if (!interface.mtu) return {};
  finding.value = static_cast<double>(*interface.mtu);
  if (requested > 0 && *interface.mtu != requested) {
    finding.severity = Severity::critical;
    finding.expected = fmt::format("{} bytes", requested);
    finding.evidence = "packets of the expected size are dropped or fragmented";
    finding.action = fmt::format("`ip link set {} mtu {}`", interface.name, requested);
  }
  const NetworkInterface* below = node.interface(interface.lower);
  if (below != nullptr && below->mtu && *interface.mtu > *below->mtu) {
    finding.severity = Severity::critical;
    finding.expected = fmt::format("at most {} bytes, the MTU of {}", *below->mtu, below->name);
    finding.evidence = "its large packets do not fit into those of the underlying interface";
    finding.action = "make the two MTUs agree";
  }
  return {finding};
}

void append(std::vector<Finding>& findings, std::vector<Finding> more) {
  findings.insert(findings.end(), more.begin(), more.end());
}

}  // namespace

std::vector<Finding> evaluate_interfaces(const Node& node, const fabric::ComputePorts& compute,
                                         const InterfaceExpectations& expected) {
  std::vector<Finding> findings{a_way_out(node)};
  append(findings, name_findings(node));
  append(findings, evaluate_links(node, compute, expected.names));
  const auto data = find_data_interfaces(node, compute, expected.names);
  for (const auto& interface : node.interfaces) {
    if (!interface.running || interface.kind == InterfaceKind::loopback) continue;
    const bool carries_data = data.contains(interface.name);
    if (is_on_a_wire(interface)) {
      append(findings,
             speed_findings(node, interface, carries_data ? expected.speed_mbps.value_or(0) : 0));
    }
    append(findings, mtu_findings(node, interface, carries_data ? expected.mtu.value_or(0) : 0));
  }
  return findings;
}

}  // namespace ddp::check
