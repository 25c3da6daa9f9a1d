// SPDX-License-Identifier: Apache-2.0
// Routing tables as Linux 6.1 prints them, and damaged tables.
#include "spank_plugin/fabric/node/route.h"

#include <gtest/gtest.h>

#include <string>

namespace ddp::fabric {
namespace {

constexpr std::string_view kRoutesV4 =
    "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT           "
    "   \n"
    "eth0\t00000000\t0102A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0                              \n"
    "eth1\t00000000\t0102A8C0\t0003\t0\t0\t50\t00000000\t0\t0\t0                              \n"
    "eth0\t0002A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0                              \n"
    "ib0\t0000A8C0\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0                              \n"
    "eth9\t0005A8C0\t00000000\t0000\t0\t0\t0\t00FFFFFF\t0\t0\t0                              \n"
    "*\t0006A8C0\t00000000\t0201\t0\t0\t0\t00FFFFFF\t0\t0\t0                              \n";

constexpr std::string_view kRoutesV6 =
    "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n"
    "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0\n"
    "20010db8000000000000000000000005 80 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 00000000 00000003 00000000 80200001     eth0\n"
    "00000000000000000000000000000000 00 00000000000000000000000000000000 00 "
    "00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";

std::string interface_to(const std::vector<Route>& routes, std::string_view address) {
  const Route* route = find_route(routes, parse_ip_address(address).value());
  return route == nullptr ? "none" : route->interface;
}

TEST(Route, PrefersLongestPrefixThenLowestMetric) {
  const auto routes = parse_ipv4_routes(kRoutesV4);
  EXPECT_EQ(routes.size(), 4U);  // one route is down, and one rejects packets
  EXPECT_EQ(interface_to(routes, "192.168.2.77"), "eth0");
  EXPECT_EQ(interface_to(routes, "192.168.3.77"), "ib0");
  EXPECT_EQ(interface_to(routes, "8.8.8.8"), "eth1");
  EXPECT_EQ(interface_to(routes, "192.168.5.1"), "ib0");
  EXPECT_EQ(interface_to(routes, "2001:db8::1"), "none");
}

TEST(Route, IPv6LeavesOutLocalAndRejectRoutes) {
  const auto routes = parse_ipv6_routes(kRoutesV6);
  ASSERT_EQ(routes.size(), 2U);
  EXPECT_EQ(interface_to(routes, "2001:db8::77"), "eth0");
  EXPECT_EQ(interface_to(routes, "2001:db9::77"), "none");
  EXPECT_EQ(routes[0].metric, 256U);
}

TEST(Route, DamagedLinesAreSkipped) {
  for (const auto* const text :
       {"", "\n\n", "eth0", "eth0 0 0 1 0 0 0", "eth0 XYZ 0 0001 0 0 0 0", "eth0 0 0 0001 0 0 -1 0",
        "eth0 123456789 0 0001 0 0 0 0", "a-name-that-is-too-long 0 0 0001 0 0 0 0",
        "^eth0 0 0 0001 0 0 0 0"}) {
    EXPECT_TRUE(parse_ipv4_routes(text).empty()) << text;
    EXPECT_TRUE(parse_ipv6_routes(text).empty()) << text;
  }
  std::string wide(kRoutesV6);
  wide.replace(33, 2, "81");  // 129 bits
  EXPECT_EQ(parse_ipv6_routes(wide).size(), 1U);
}

TEST(Route, TablesAreBounded) {
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "eth0 0002A8C0 0 0001 0 0 0 00FFFFFF\n";
  EXPECT_EQ(parse_ipv4_routes(many).size(), 4096U);
}

}  // namespace
}  // namespace ddp::fabric
