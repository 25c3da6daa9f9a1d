// SPDX-License-Identifier: Apache-2.0
// Addresses as text and as numbers.
#include "spank_plugin/fabric/files/ip_address.h"

#include <gtest/gtest.h>

namespace ddp::fabric {
namespace {

IpAddress ip(std::string_view text) {
  return parse_ip_address(text).value();
}

TEST(IpAddress, IsParsedInAllFormats) {
  EXPECT_EQ(to_string(ip("10.0.0.1")), "10.0.0.1");
  EXPECT_EQ(to_string(ip("fe80:0000:0000:0000:506b:4b03:00c0:ffee")), "fe80::506b:4b03:c0:ffee");
  EXPECT_EQ(to_string(ip("fe80::1%eth0")), "fe80::1");
  EXPECT_EQ(ip("0000:0000:0000:0000:0000:ffff:0a00:0001"), ip("10.0.0.1"));
  for (const auto* const bad : {"", "10.0.0", "10.0.0.256", "node1", ":::", "%eth0", "1.2.3.4.5"}) {
    EXPECT_FALSE(parse_ip_address(bad)) << bad;
  }
}

TEST(IpAddress, LoopbackAndLinkLocalAreRecognized) {
  EXPECT_TRUE(ip("127.0.1.1").is_loopback());
  EXPECT_TRUE(ip("::1").is_loopback());
  EXPECT_FALSE(ip("128.0.0.1").is_loopback());
  EXPECT_FALSE(ip("::2").is_loopback());
  EXPECT_FALSE(ip("1::1").is_loopback());
  EXPECT_TRUE(ip("169.254.1.1").is_link_local());
  EXPECT_TRUE(ip("febf::1").is_link_local());
  EXPECT_FALSE(ip("fec0::1").is_link_local());
}

TEST(IpAddress, NetworkIsDecidedByTheLeadingBits) {
  EXPECT_TRUE(is_in(ip("10.1.2.3"), ip("10.1.0.0"), 16));
  EXPECT_FALSE(is_in(ip("10.2.2.3"), ip("10.1.0.0"), 16));
  EXPECT_TRUE(is_in(ip("10.1.2.131"), ip("10.1.2.128"), 25));
  EXPECT_FALSE(is_in(ip("10.1.2.3"), ip("10.1.2.128"), 25));
  EXPECT_TRUE(is_in(ip("10.1.2.3"), ip("10.1.2.3"), 32));
  EXPECT_TRUE(is_in(ip("10.1.2.3"), ip("0.0.0.0"), 0));
  EXPECT_FALSE(is_in(ip("10.1.2.3"), ip("::"), 0));
  EXPECT_FALSE(is_in(ip("10.1.2.3"), ip("10.1.2.3"), 33));
  EXPECT_TRUE(is_in(ip("2001:db8::1"), ip("2001:db8::"), 128 - 1));
}

TEST(IpAddress, PrefersTheIPv4AddressOfAnInterface) {
  const std::vector<InterfaceAddress> addresses{{"e0", ip("fe80::1"), 64},
                                                {"e0", ip("2001:db8::1"), 64},
                                                {"e0", ip("10.0.0.1"), 24},
                                                {"e1", ip("fe80::2"), 64}};
  EXPECT_EQ(address_of(addresses, "e0"), ip("10.0.0.1"));
  EXPECT_FALSE(address_of(addresses, "e1"));
  EXPECT_EQ(interface_with(addresses, ip("2001:db8::1")), "e0");
  EXPECT_EQ(interface_with(addresses, ip("10.0.0.2")), "");
}

}  // namespace
}  // namespace ddp::fabric
