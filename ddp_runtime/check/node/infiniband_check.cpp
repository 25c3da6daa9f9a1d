// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/infiniband_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "spank_plugin/fabric/roce_gid.h"

namespace ddp::check {
namespace {

using fabric::InfinibandPort;
using Ports = std::span<const InfinibandPort>;

Finding about(const InfinibandPort& port, const char* check, const char* rule) {
  return {.check = check, .severity = Severity::ok, .device = name_of(port), .rule = rule};
}

// A port that has a link but is not active waits for a subnet manager, which is a fault of the
// fabric. A port without a link may be a spare, unless no port of the node is active.
Finding state_finding(const InfinibandPort& port, bool any_active) {
  Finding finding = about(port, "infiniband.state", "a port is ACTIVE with LinkUp");
  finding.expected = "ACTIVE";
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
  if (port.phys_state == "LinkUp") {
    finding.severity = Severity::critical;
    finding.action =
        "the link is up but no subnet manager has configured it: check the subnet manager";
  } else {
    finding.severity = any_active ? Severity::warning : Severity::critical;
    finding.action = "check cable, transceiver and switch port; if the port is a spare, disable it";
  }
  return finding;
}

std::vector<Finding> lid_findings(const InfinibandPort& port) {
  if (port.link_layer != "InfiniBand" || !port.active() || !port.lid) return {};
  Finding finding = about(port, "infiniband.lid",
                          "an active port has an address from the subnet "
                          "manager");
  finding.value = static_cast<double>(*port.lid);
  if (*port.lid == 0 || port.sm_lid == 0) {
    finding.severity = Severity::warning;
    finding.expected = "not 0";
    finding.evidence = *port.lid == 0 ? "the port has no LID" : "the port has no subnet manager";
    finding.action = "check the subnet manager";
  }
  return {finding};
}

// Rates of the active ports with the same link layer, because RoCE storage ports are slower than an
// InfiniBand compute fabric by design.
std::vector<double> rates_beside(Ports ports, const InfinibandPort& port) {
  std::vector<double> rates;
  for (const auto& other : ports) {
    if (other.active() && other.link_layer == port.link_layer && other.rate_gbps) {
      rates.push_back(*other.rate_gbps);
    }
  }
  return rates;
}

Finding rate_finding(Ports ports, const InfinibandPort& port) {
  Finding finding = about(port, "infiniband.rate", "as fast as the node's other ports of its kind");
  finding.unit = "Gb/s";
  if (!port.rate_gbps) {
    finding.severity = Severity::unknown;
    finding.evidence = fmt::format("the kernel reports the rate as '{}'", port.rate_text);
    finding.action = "check that /sys is visible";
    return finding;
  }
  finding.value = *port.rate_gbps;
  const std::vector<double> rates = rates_beside(ports, port);
  const double fastest = *std::max_element(rates.begin(), rates.end());
  if (*port.rate_gbps >= fastest) return finding;
  // One slow port among several fast ones is faulty. If only two ports differ, either speed may be
  // intended.
  const auto fast = std::count(rates.begin(), rates.end(), fastest);
  const bool odd_one_out = 2 * fast > static_cast<std::ptrdiff_t>(rates.size());
  finding.severity = odd_one_out ? Severity::critical : Severity::warning;
  finding.expected = fmt::format("{:g} Gb/s", fastest);
  finding.evidence = fmt::format("{}; {} of {} ports run at {:g} Gb/s", port.rate_text, fast,
                                 rates.size(), fastest);
  finding.action = "check cable and transceiver, and retrain the link";
  return finding;
}

// RDMA between nodes needs an address that routers and peers know. The finding is only a warning,
// because the port may carry plain Ethernet or be unused.
std::vector<Finding> gid_findings(const InfinibandPort& port) {
  if (port.link_layer != "InfiniBand" && port.link_layer != "Ethernet") return {};
  Finding finding = about(port, "infiniband.gid", "an active port has an address for RDMA");
  const bool roce = port.link_layer == "Ethernet";
  if (port.gids.empty() || (roce && !fabric::shows_gid_types(port))) {
    finding.severity = Severity::unknown;
    finding.evidence = port.gids.empty() ? "the kernel reports no GID for the port"
                                         : "the kernel does not report the types of its GIDs";
    finding.action = "check that /sys is visible, and run show_gids";
    return {finding};
  }
  finding.value = fmt::format("{} GIDs", port.gids.size());
  if (!roce) return {finding};
  const auto chosen = fabric::choose_roce_gid(port, "");
  if (chosen && chosen->is_v4) return {finding};
  finding.severity = Severity::warning;
  finding.expected = "RoCE v2 with an IPv4 address";
  finding.evidence = chosen ? "its only routable address is IPv6, which few sites use"
                            : "no RoCE v2 address that reaches other nodes";
  finding.action =
      "give its interface an IPv4 address, or exclude the port from jobs (NCCL_IB_HCA)";
  return {finding};
}

}  // namespace

std::vector<Finding> evaluate_infiniband(Ports ports) {
  const bool any_active =
      std::any_of(ports.begin(), ports.end(), [](const auto& port) { return port.active(); });
  std::vector<Finding> findings;
  for (const auto& port : ports) {
    findings.push_back(state_finding(port, any_active));
    if (!port.active()) continue;
    findings.push_back(rate_finding(ports, port));
    for (auto& finding : lid_findings(port)) findings.push_back(std::move(finding));
    for (auto& finding : gid_findings(port)) findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace ddp::check
