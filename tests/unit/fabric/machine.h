// SPDX-License-Identifier: Apache-2.0
// A whole node as a test input: a fake tree of /sys, /proc and /etc, with addresses and routes,
// created from one readable text. The files in machines/ describe nodes of known kinds.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "spank_plugin/fabric/node/node.h"
#include "tests/unit/fabric/fake_sysfs.h"

namespace ddp::test {

class Machine {
 public:
  // Accepts the lines of FakeSysfs below the file system's root (sys/.., proc/.., etc/.., home/..),
  // and:
  //   address eth0 10.0.0.1/24       in the order of getifaddrs(3)
  //   route eth0 10.0.0.0/24 100     a metric may follow
  //   route eth0 default             default6 for IPv6
  // Routes become proc/net/route and proc/net/ipv6_route as the kernel writes them.
  explicit Machine(std::string_view text);

  const std::filesystem::path& root() const noexcept { return tree_.root(); }
  const std::vector<fabric::InterfaceAddress>& addresses() const noexcept { return addresses_; }

  fabric::Node read() const;

 private:
  std::vector<fabric::InterfaceAddress> addresses_;
  FakeSysfs tree_;
};

// Returns tests/unit/fabric/machines/<name>.txt of the source tree. A text may be a variant of
// another:
//   like functions_before_rails
//   replace /speed = 100000 -> /speed = 400000
std::string machine_text(const std::string& name);

// Returns the names of all these texts, sorted.
std::vector<std::string> machine_names();

}  // namespace ddp::test
