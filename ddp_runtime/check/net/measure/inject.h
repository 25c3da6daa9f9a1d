// SPDX-License-Identifier: Apache-2.0
// Faults injected on purpose, so that every path of the network check can be tested on one machine.
// They act only inside ddp-check itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/measure/transport_kind.h"

namespace ddp::check {

struct Faults {
  double speed = 1.0;    // transfers of this node take 1 / speed times as long
  bool corrupt = false;  // one byte of everything it receives is changed before it is verified
  bool missing = false;  // it never reports
  std::optional<TransportKind> hang = {};  // it stops answering when this stage starts
  double drop = 0;  // fraction of the data it sends over TCP that counts as lost
  int mtu = 0;      // larger packets from and to it are dropped; 0 for no limit
  double skew = 0;  // seconds that its clock is ahead
  double jump = 0;  // seconds that its clock jumps during the check
};

struct Injection {
  std::string node;
  std::string peer;  // if not empty, the fault affects only exchanges of these two nodes
  Faults faults;
};

// "slow:NODE:FACTOR", or "slow:NODE+NODE:FACTOR" for exchanges between two nodes, with a factor
// between 0 and 1, "hang:NODE" (in the TCP tests) or "hang:NODE:mpi", "corrupt:NODE" or
// "corrupt:NODE+NODE", "missing:NODE", "drop:NODE:PART", "mtu:NODE:BYTES", "skew:NODE:SECONDS",
// "jump:NODE:SECONDS"; several may be joined by commas. Throws UsageError.
std::vector<Injection> parse_injections(const std::vector<std::string>& texts);

// All faults of one node, and its faults in exchanges with `peer`.
Faults faults_of(const std::string& node, std::span<const Injection> injections);
Faults faults_between(const std::string& node, const std::string& peer,
                      std::span<const Injection> injections);

}  // namespace ddp::check
