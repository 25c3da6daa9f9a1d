// SPDX-License-Identifier: Apache-2.0
// The addresses that this machine's kernel reports. There is always a loopback address.
#include "spank_plugin/fabric/host/local_addresses.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ddp::fabric {
namespace {

TEST(LocalAddresses, IncludeTheLoopback) {
  const auto addresses = local_addresses();
  const InterfaceAddress loopback{"lo", parse_ip_address("127.0.0.1").value(), 8};
  EXPECT_NE(std::find(addresses.begin(), addresses.end(), loopback), addresses.end());
}

TEST(LocalAddresses, SourceToOwnAddressIsThatAddress) {
  EXPECT_EQ(source_address_to("127.0.0.1"), "127.0.0.1");
  for (const auto& entry : local_addresses()) {
    if (entry.address.is_v6) continue;
    EXPECT_EQ(source_address_to(to_string(entry.address)), to_string(entry.address));
  }
}

TEST(LocalAddresses, NoSourceForInvalidAddresses) {
  EXPECT_FALSE(source_address_to("node1"));
  EXPECT_FALSE(source_address_to(""));
  EXPECT_FALSE(source_address_to("255.255.255.255"));  // needs SO_BROADCAST
}

}  // namespace
}  // namespace ddp::fabric
