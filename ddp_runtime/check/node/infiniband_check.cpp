// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/infiniband_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "ddp_runtime/check/node/infiniband_kind.h"
#include "ddp_runtime/check/node/infiniband_state.h"
#include "spank_plugin/fabric/choice/roce_gid.h"

namespace ddp::check {
namespace {

using fabric::ComputePorts;
using fabric::InfinibandPort;
using fabric::Node;

Finding about(const InfinibandPort& port, const char* check, const char* rule) {
  return {.check = check, .severity = Severity::ok, .device = name_of(port), .rule = rule};
}

std::vector<Finding> lid_findings(const InfinibandPort& port) {
  if (port.link_layer != "InfiniBand" || !port.lid) return {};
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

// True if a port on another card has the rate. The ports of one card may lead to different
// networks.
bool other_card_has_rate(const Node& node, const std::vector<std::size_t>& ports,
                         const InfinibandPort& port, double rate) {
  return std::any_of(ports.begin(), ports.end(), [&](std::size_t index) {
    const InfinibandPort& other = node.ports[index];
    return other.rate_gbps == rate &&
           (other.bus_address.empty() || card_of(other) != card_of(port));
  });
}

// One slow port among several fast ones on equal boards is faulty. If only two ports differ, or if
// their boards are unknown, either speed may be intended.
void compare_rates(const Node& node, const std::vector<std::size_t>& ports, std::size_t index,
                   Finding& finding) {
  std::vector<double> rates;
  for (const std::size_t port : ports) {
    if (node.ports[port].rate_gbps) rates.push_back(*node.ports[port].rate_gbps);
  }
  const double fastest = *std::max_element(rates.begin(), rates.end());
  const InfinibandPort& port = node.ports[index];
  if (*port.rate_gbps >= fastest) return;
  const auto fast = std::count(rates.begin(), rates.end(), fastest);
  const bool odd_one_out = 2 * fast > static_cast<std::ptrdiff_t>(rates.size());
  finding.severity =
      odd_one_out && !port.board.empty() && other_card_has_rate(node, ports, port, fastest)
          ? Severity::critical
          : Severity::warning;
  finding.expected = fmt::format("{:g} Gb/s", fastest);
  finding.evidence = fmt::format("{}; {} of {} ports of its kind run at {:g} Gb/s", port.rate_text,
                                 fast, rates.size(), fastest);
  finding.action = "check cable and transceiver, and retrain the link";
}

Finding rate_finding(const Node& node, const ComputePorts& compute, std::size_t index) {
  const InfinibandPort& port = node.ports[index];
  Finding finding =
      about(port, "infiniband.rate", "as fast as the compute fabric's other ports of its kind");
  finding.unit = "Gb/s";
  if (port.rate_gbps) finding.value = *port.rate_gbps;
  const auto ports = ports_of_its_kind(node, compute, index);
  if (ports.empty()) {
    finding.evidence = left_out_text(compute, index);
  } else if (port.rate_gbps) {
    compare_rates(node, ports, index, finding);
  } else {
    finding.severity = Severity::unknown;
    finding.evidence = fmt::format("the kernel reports the rate as '{}'", port.rate_text);
    finding.action = "check that /sys is visible";
  }
  return finding;
}

bool has_v4_address(const InfinibandPort& port) {
  const auto gid = fabric::choose_roce_gid(port, "");
  return gid && gid->is_v4;
}

// NCCL uses one address family for all ports, so that IPv6 is right if no compute port has IPv4.
void judge_address(const Node& node, const ComputePorts& compute, const InfinibandPort& port,
                   Finding& finding) {
  const bool any_v4 =
      std::any_of(compute.ports.begin(), compute.ports.end(),
                  [&node](std::size_t other) { return has_v4_address(node.ports[other]); });
  const bool has_address = fabric::choose_roce_gid(port, "").has_value();
  if (has_v4_address(port) || (has_address && !any_v4)) return;
  finding.severity = Severity::warning;
  finding.expected = any_v4 ? "RoCE v2 with an IPv4 address" : "RoCE v2 with an IP address";
  finding.evidence = has_address ? "its only routable address is IPv6, while other ports have IPv4"
                                 : "no RoCE v2 address that reaches other nodes";
  finding.action = "give its interface an IP address, or exclude the port from jobs (NCCL_IB_HCA)";
}

// RDMA between nodes needs an address that routers and peers know. The finding is only a warning,
// because the port may carry plain Ethernet or be unused.
std::vector<Finding> gid_findings(const Node& node, const ComputePorts& compute,
                                  std::size_t index) {
  const InfinibandPort& port = node.ports[index];
  if (port.link_layer != "InfiniBand" && port.link_layer != "Ethernet") return {};
  Finding finding = about(port, "infiniband.gid", "an active port has an address for RDMA");
  finding.value = fmt::format("{} GIDs", port.gids.size());
  if (const auto* left_out = compute.find_left_out(index)) {
    finding.evidence = left_out_text(compute, index);
    if (left_out->by == fabric::LeftOutBy::address && is_rail(node, compute, index)) {
      judge_address(node, compute, port, finding);
    }
    return {finding};
  }
  const bool roce = port.link_layer == "Ethernet";
  if (port.gids.empty() || (roce && !fabric::shows_gid_types(port))) {
    finding.severity = Severity::unknown;
    finding.value = {};
    finding.evidence = port.gids.empty() ? "the kernel reports no GID for the port"
                                         : "the kernel does not report the types of its GIDs";
    finding.action = "check that /sys is visible, and run show_gids";
    return {finding};
  }
  if (roce) judge_address(node, compute, port, finding);
  return {finding};
}

}  // namespace

std::vector<Finding> evaluate_infiniband(const Node& node, const ComputePorts& compute) {
  std::vector<Finding> findings;
  const auto append = [&findings](std::vector<Finding> more) {
    findings.insert(findings.end(), more.begin(), more.end());
  };
  for (std::size_t port = 0; port < node.ports.size(); ++port) {
    findings.push_back(evaluate_port_state(node, compute, port));
    if (!node.ports[port].active()) continue;
    findings.push_back(rate_finding(node, compute, port));
    append(lid_findings(node.ports[port]));
    append(gid_findings(node, compute, port));
  }
  return findings;
}

}  // namespace ddp::check
