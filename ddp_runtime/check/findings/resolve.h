// SPDX-License-Identifier: Apache-2.0
// Name resolution with a timeout. Returns numeric addresses, which can be compared between nodes.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace ddp::check {

struct Resolution {
  std::vector<std::string> addresses;  // numeric, sorted, each once
  std::string error;                   // why there are no addresses
  bool timed_out = false;
  // The name service failed, which says nothing about the name: all nodes see the same failure.
  bool service_failed = false;
};

// The outcome of a getaddrinfo() that returned this error code.
Resolution failed_resolution(int code);

Resolution resolve(const std::string& name, std::chrono::milliseconds timeout);

// Whether the text is a numeric IPv4 or IPv6 address, not a name.
bool is_address(const std::string& text);

// Whether all addresses are loopback addresses, which other nodes cannot use. False for an empty
// list.
bool only_loopback(const std::vector<std::string>& addresses);

}  // namespace ddp::check
