// Faults put in on purpose, so that every path of the network check can be seen to work on one
// machine. They act in our own code only.
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
  bool corrupt = false;  // one byte of everything it receives changes before it is verified
  bool missing = false;  // it never reports
  std::optional<TransportKind> hang = {};  // it stops answering when this stage begins
  double drop = 0;                         // part of what it sends over TCP that counts as lost
  int mtu = 0;                             // larger packets from and to it vanish; 0 for none
  double skew = 0;                         // seconds that its clock is ahead
  double jump = 0;                         // seconds that its clock jumps during the check
};

struct Injection {
  std::string node;
  std::string peer;  // empty, or the fault is in what these two exchange and nowhere else
  Faults faults;
};

// "slow:NODE:FACTOR", or "slow:NODE+NODE:FACTOR" for what two nodes exchange, with a factor between
// 0 and 1, "hang:NODE" (in the TCP tests) or "hang:NODE:mpi", "corrupt:NODE" or
// "corrupt:NODE+NODE", "missing:NODE", "drop:NODE:PART", "mtu:NODE:BYTES", "skew:NODE:SECONDS",
// "jump:NODE:SECONDS"; several may be joined by commas. Throws UsageError.
std::vector<Injection> parse_injections(const std::vector<std::string>& texts);

// All that is put into one node, and what acts when it exchanges data with `peer`.
Faults faults_of(const std::string& node, std::span<const Injection> injections);
Faults faults_between(const std::string& node, const std::string& peer,
                      std::span<const Injection> injections);

}  // namespace ddp::check
