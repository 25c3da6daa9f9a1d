// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/interfaces_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace ddp::check {
namespace {

using fabric::InterfaceKind;
using fabric::NetworkInterface;
using Interfaces = std::span<const NetworkInterface>;

bool on_a_wire(const NetworkInterface& interface) {
  return interface.kind == InterfaceKind::physical || interface.kind == InterfaceKind::ipoib;
}

const NetworkInterface* find(Interfaces interfaces, const std::string& name) {
  const auto found = std::find_if(interfaces.begin(), interfaces.end(),
                                  [&name](const auto& other) { return other.name == name; });
  return found == interfaces.end() ? nullptr : &*found;
}

Finding a_way_out(Interfaces interfaces) {
  Finding finding{.check = "interface.any",
                  .severity = Severity::ok,
                  .rule = "some interface besides loopback is running"};
  std::string running;
  for (const auto& interface : interfaces) {
    if (!interface.running || interface.kind == InterfaceKind::loopback) continue;
    running += (running.empty() ? "" : " ") + interface.name;
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

// An enabled interface should have a link; a disabled interface is off on purpose.
Finding link_finding(const NetworkInterface& interface) {
  Finding finding{.check = "interface.link",
                  .severity = Severity::ok,
                  .device = interface.name,
                  .value = "up",
                  .rule = "an enabled interface has a link"};
  if (interface.running) return finding;
  finding.severity = Severity::warning;
  finding.value = "no link";
  finding.expected = "a link";
  finding.evidence = interface.master.empty()
                         ? "enabled, but without carrier"
                         : fmt::format("{} runs on its other ports only", interface.master);
  finding.action = "check cable, transceiver and switch port";
  return finding;
}

// The ports of a bond should have the same speed, so the fastest port determines the expected
// speed.
int fastest_sibling(Interfaces interfaces, const NetworkInterface& interface) {
  int fastest = 0;
  for (const auto& other : interfaces) {
    if (!interface.master.empty() && other.master == interface.master && on_a_wire(other)) {
      fastest = std::max(fastest, other.speed_mbps.value_or(0));
    }
  }
  return fastest;
}

// No findings if neither the driver nor the administrator provides a speed, because there is
// nothing to compare.
std::vector<Finding> speed_findings(Interfaces interfaces, const NetworkInterface& interface,
                                    const InterfaceExpectations& expected) {
  if (!interface.speed_mbps && !expected.speed_mbps) return {};
  const int sibling = fastest_sibling(interfaces, interface);
  const int wanted = std::max(expected.speed_mbps.value_or(0), sibling);
  Finding finding{.check = "interface.speed",
                  .severity = Severity::ok,
                  .device = interface.name,
                  .unit = "Mb/s",
                  .rule = sibling > expected.speed_mbps.value_or(0)
                              ? "as fast as the other ports of " + interface.master
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
    finding.severity = 2 * *interface.speed_mbps <= wanted ? Severity::critical : Severity::warning;
    finding.evidence = "the link negotiated a lower speed";
    finding.action = "check the cable, the transceiver and `ethtool " + interface.name + "`";
  } else if (interface.full_duplex == false) {
    finding.severity = Severity::warning;
    finding.evidence = "the link negotiated half duplex";
    finding.action = "check the switch port's settings";
  }
  return {finding};
}

std::vector<Finding> mtu_findings(Interfaces interfaces, const NetworkInterface& interface,
                                  const InterfaceExpectations& expected) {
  Finding finding{.check = "interface.mtu",
                  .severity = Severity::ok,
                  .device = interface.name,
                  .unit = "bytes",
                  .rule = "the requested MTU, which the underlying interface can carry"};
  if (!interface.mtu) return {};
  finding.value = static_cast<double>(*interface.mtu);
  if (on_a_wire(interface) && expected.mtu && *interface.mtu != *expected.mtu) {
    finding.severity = Severity::critical;
    finding.expected = fmt::format("{} bytes", *expected.mtu);
    finding.evidence = "packets of the expected size are dropped or fragmented";
    finding.action = fmt::format("`ip link set {} mtu {}`", interface.name, *expected.mtu);
  }
  const NetworkInterface* below = find(interfaces, interface.lower);
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

std::vector<Finding> evaluate_interfaces(Interfaces interfaces,
                                         const InterfaceExpectations& expected) {
  std::vector<Finding> findings{a_way_out(interfaces)};
  for (const auto& interface : interfaces) {
    if (on_a_wire(interface) && interface.up) findings.push_back(link_finding(interface));
    if (!interface.running) continue;
    if (on_a_wire(interface)) append(findings, speed_findings(interfaces, interface, expected));
    if (interface.kind != InterfaceKind::loopback) {
      append(findings, mtu_findings(interfaces, interface, expected));
    }
  }
  return findings;
}

}  // namespace ddp::check
