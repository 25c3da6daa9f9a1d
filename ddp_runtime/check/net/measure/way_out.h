// SPDX-License-Identifier: Apache-2.0
// The interface through which packets to an address leave this machine.
#pragma once

#include <optional>
#include <string>

namespace ddp::check {

struct WayOut {
  std::string interface;
  int mtu = 0;            // in bytes
  bool loopback = false;  // the address is one of this machine
};

// By all of the kernel's rules, policy routing included. `address` is numeric, IPv4 or IPv6. Sends
// no packet. Returns nullopt if there is no route, or if the kernel does not answer.
std::optional<WayOut> way_out_to(const std::string& address);

}  // namespace ddp::check
