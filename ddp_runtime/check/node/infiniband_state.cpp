// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/infiniband_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ddp_runtime/check/node/data_interfaces.h"
#include "ddp_runtime/check/node/infiniband_kind.h"
#include "spank_plugin/fabric/choice/port_place.h"

namespace ddp::check {
namespace {

using fabric::ComputePorts;
using fabric::InfinibandPort;
using fabric::NetworkInterface;
using fabric::Node;

// Returns the Ethernet interfaces of the port's device.
std::vector<const NetworkInterface*> interfaces_of(const Node& node, const InfinibandPort& port) {
  std::vector<const NetworkInterface*> found;
  for (const auto& interface : node.interfaces) {
    if (interface.kind == fabric::InterfaceKind::physical && !port.bus_address.empty() &&
        interface.bus_address == port.bus_address) {
      found.push_back(&interface);
    }
  }
  return found;
}

// Returns the reason why the port is off on purpose; empty if it should be active. The drivers of
// Ethernet cards report "Disabled" for a port without a cable, too, so that the port's interface
// must decide.
std::string reason_to_be_off(const Node& node, const InfinibandPort& port) {
  const bool says_disabled = port.phys_state == "Disabled";
  if (port.link_layer == "InfiniBand") return says_disabled ? "switched off" : "";
  if (port.link_layer != "Ethernet") return "";
  const auto interfaces = interfaces_of(node, port);
  if (interfaces.empty()) return says_disabled ? "no interface uses it" : "";
  const bool any_up = std::any_of(interfaces.begin(), interfaces.end(),
                                  [](const auto* interface) { return interface->up; });
  return any_up ? "" : fmt::format("its interface {} is disabled", interfaces.front()->name);
}

// True for the free port of a card that the compute fabric does not use, such as the second port of
// a card for storage.
bool is_free_port(const Node& node, const ComputePorts& compute, std::size_t index) {
  const InfinibandPort& port = node.ports[index];
  if (port.bus_address.empty() || is_rail(node, compute, index)) return false;
  bool is_used = false;
  for (std::size_t other = 0; other < node.ports.size(); ++other) {
    if (!node.ports[other].active() || card_of(node.ports[other]) != card_of(port)) continue;
    if (compute.find_left_out(other) == nullptr) return false;
    is_used = true;
  }
  return is_used;
}

// True for a port without a cable whose interface is not in use, such as a free on-board port,
// unless it may be of the compute ports' kind.
bool is_unused_ethernet(const Node& node, const ComputePorts& compute, std::size_t index) {
  const auto interfaces = interfaces_of(node, node.ports[index]);
  const bool may_be_rail =
      std::any_of(compute.ports.begin(), compute.ports.end(),
                  [&](std::size_t other) { return fabric::are_of_one_kind(node, index, other); });
  return node.ports[index].link_layer == "Ethernet" && !may_be_rail && !interfaces.empty() &&
         std::none_of(interfaces.begin(), interfaces.end(),
                      [&node](const auto* interface) { return is_in_use(node, *interface); });
}

// True if the port has a link, and waits for the subnet manager of its fabric.
bool is_waiting(const InfinibandPort& port) {
  return (port.state == "INIT" || port.state == "ARMED") && port.phys_state == "LinkUp" &&
         port.link_layer != "Ethernet";
}

bool any_link(const Node& node) {
  return std::any_of(node.ports.begin(), node.ports.end(),
                     [](const auto& port) { return port.active() || is_waiting(port); });
}

// True if more ports of the port's kind wait than are active: their subnet manager is at fault, on
// all nodes of its fabric at the same moment.
bool most_are_waiting(const Node& node, std::size_t index) {
  std::ptrdiff_t lead = 0;
  for (std::size_t other = 0; other < node.ports.size(); ++other) {
    if (!fabric::are_of_one_kind(node, index, other)) continue;
    lead += (is_waiting(node.ports[other]) ? 1 : 0) - (node.ports[other].active() ? 1 : 0);
  }
  return lead > 0;
}

void judge_without_manager(const Node& node, const ComputePorts& compute, std::size_t port,
                           Finding& finding) {
  const bool is_odd_one_out = is_rail(node, compute, port) && !most_are_waiting(node, port);
  finding.severity = is_odd_one_out ? Severity::critical : Severity::warning;
  finding.action = "the link is up, but no subnet manager has configured it: ";
  finding.action += most_are_waiting(node, port)
                        ? "check the subnet manager of the fabric before the node (`sminfo`)"
                        : "check the port, and its partition in the subnet manager";
}

void judge_without_link(const Node& node, const ComputePorts& compute, std::size_t port,
                        Finding& finding) {
  if (is_free_port(node, compute, port)) {
    finding.evidence +=
        "; the compute fabric does not use its card, of which another port is active";
    return;
  }
  if (any_link(node) && is_unused_ethernet(node, compute, port)) {
    finding.evidence += "; its interface has no network";
    return;
  }
  finding.severity = any_link(node) ? Severity::warning : Severity::critical;
  finding.action = "check cable, transceiver and switch port; if the port is a spare, disable it";
}

}  // namespace

Finding evaluate_port_state(const Node& node, const ComputePorts& compute, std::size_t index) {
  const InfinibandPort& port = node.ports[index];
  Finding finding{.check = "infiniband.state",
                  .severity = Severity::ok,
                  .device = name_of(port),
                  .expected = "ACTIVE",
                  .rule = "a port is ACTIVE with LinkUp, or off on purpose"};
  if (port.state.empty()) {
    finding.severity = Severity::unknown;
    finding.evidence = "the kernel does not report the port's state";
    finding.action = "check that /sys is visible";
    return finding;
  }
  finding.value = port.state;
  if (port.active()) return finding;
  finding.evidence =
      fmt::format("physical state {}", port.phys_state.empty() ? "unknown" : port.phys_state);
  const std::string reason = reason_to_be_off(node, port);
  if (!reason.empty()) {
    finding.evidence += ": " + reason;
  } else if (is_waiting(port)) {
    judge_without_manager(node, compute, index, finding);
  } else {
    judge_without_link(node, compute, index, finding);
  }
  return finding;
}

}  // namespace ddp::check
