// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/node/host_name_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace ddp::check {

Finding evaluate_host_name(const Resolution& resolution) {
  Finding finding{.check = "name.own",
                  .severity = Severity::ok,
                  .expected = "an address that other nodes can use",
                  .rule = "the host name resolves to an address other than loopback"};
  if (resolution.service_failed) {
    finding.severity = Severity::unknown;
    finding.value = "no answer";
    finding.evidence = resolution.error;
    finding.action =
        "check the name service (/etc/resolv.conf, /etc/nsswitch.conf) before the node, or add "
        "the nodes to /etc/hosts";
    return finding;
  }
  if (resolution.addresses.empty()) {
    finding.severity = Severity::critical;
    finding.value = "unknown name";
    finding.evidence = resolution.error;
    finding.action = "add the node to DNS or /etc/hosts on every node";
    return finding;
  }
  finding.value = fmt::format("{}", fmt::join(resolution.addresses, " "));
  if (only_loopback(resolution.addresses)) {
    finding.severity = Severity::warning;
    finding.evidence = "other nodes cannot reach a program that announces this address";
    finding.action = "give the name its real address in /etc/hosts";
  }
  return finding;
}

}  // namespace ddp::check
