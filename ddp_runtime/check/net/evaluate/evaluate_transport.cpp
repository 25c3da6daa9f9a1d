// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/evaluate/evaluate_transport.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace ddp::check {
namespace {

bool by_rdma(const NodeTransport& transport) {
  return std::any_of(transport.carriers.begin(), transport.carriers.end(), is_rdma_port);
}

bool by_another(const NodeTransport& transport, const std::string& rail) {
  const auto& used = transport.carriers;
  return !used.empty() && std::find(used.begin(), used.end(), rail) == used.end();
}

}  // namespace

std::string carriers_text(const NodeTransport& transport) {
  return transport.carriers.empty() ? "memory"
                                    : fmt::format("{}", fmt::join(transport.carriers, " "));
}

std::string carriers_text(const Transports& transports) {
  std::set<std::string> texts;
  for (const auto& [node, transport] : transports) texts.insert(carriers_text(transport));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::vector<Finding> evaluate_transport(const std::string& kind, const Transports& transports,
                                        const std::string& rail) {
  Finding finding{.check = kind + ".transport",
                  .severity = Severity::ok,
                  .device = rail,
                  .value = carriers_text(transports),
                  .rule = "the bytes that each device carried during the test"};
  if (transports.empty()) {
    finding.severity = Severity::unknown;
    finding.value = Value();
    finding.evidence = "no node reported interface counters";
    finding.action = "check that /sys is visible on the nodes";
    return {finding};
  }
  const auto rdma = std::count_if(transports.begin(), transports.end(),
                                  [](const auto& entry) { return by_rdma(entry.second); });
  // IPoIB traffic also increases the counters of the InfiniBand port, but for TCP, IPoIB is an
  // ordinary interface.
  const bool most = kind != "tcp" && 2 * rdma > static_cast<std::ptrdiff_t>(transports.size());
  std::vector<Finding> findings;
  for (const auto& [node, transport] : transports) {
    finding.evidence = transport.modules;
    const bool fell_back = most && !by_rdma(transport);
    const bool strayed = !rail.empty() && by_another(transport, rail);
    if (!fell_back && !strayed) continue;
    Finding wrong = finding;
    wrong.severity = Severity::warning;
    wrong.node = node;
    wrong.value = carriers_text(transport);
    wrong.expected = strayed ? rail : "an RDMA port, as most nodes used";
    wrong.action =
        strayed
            ? "check routing on this node: traffic for this rail leaves through another interface"
            : "check drivers, the locked-memory limit and the library's settings on this node";
    findings.push_back(std::move(wrong));
  }
  if (findings.empty()) findings.push_back(finding);
  return findings;
}

}  // namespace ddp::check
