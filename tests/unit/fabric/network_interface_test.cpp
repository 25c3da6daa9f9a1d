// SPDX-License-Identifier: Apache-2.0
// Interfaces of fake nodes: each kind is recognized, and none is dropped.
#include "spank_plugin/fabric/node/network_interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "tests/unit/fabric/fake_sysfs.h"

namespace ddp::fabric {
namespace {

std::map<std::string, NetworkInterface> by_name(const test::FakeSysfs& fake) {
  std::map<std::string, NetworkInterface> result;
  for (auto& interface : read_network_interfaces(fake.root())) result[interface.name] = interface;
  return result;
}

// A bare-metal node with all kinds of interfaces that a site may use.
constexpr std::string_view kCrowdedNode = R"(
  devices/pci/0000:17:00.0/numa_node = 1
  class/net/lo/type = 772
  class/net/lo/flags = 0x9
  class/net/lo/operstate = unknown
  class/net/lo/carrier = 1
  class/net/lo/ifindex = 1
  class/net/eth0/type = 1
  class/net/eth0/flags = 0x1003
  class/net/eth0/operstate = up
  class/net/eth0/ifindex = 2
  class/net/eth0/iflink = 2
  class/net/eth0/speed = 100000
  class/net/eth0/duplex = full
  class/net/eth0/mtu = 9000
  class/net/eth0/address = 0c:42:a1:00:00:01
  class/net/eth0/device -> ../../../devices/pci/0000:17:00.0
  class/net/eth0/master -> ../bond0
  class/net/bond0/type = 1
  class/net/bond0/ifindex = 3
  class/net/bond0/uevent = DEVTYPE=bond\nINTERFACE=bond0
  class/net/bond0/bonding/mode = active-backup 1
  class/net/bond0.8/type = 1
  class/net/bond0.8/ifindex = 4
  class/net/bond0.8/iflink = 3
  class/net/bond0.8/uevent = DEVTYPE=vlan\nINTERFACE=bond0.8
  class/net/bond0.8/lower_bond0 -> ../bond0
  class/net/docker0/type = 1
  class/net/docker0/ifindex = 5
  class/net/docker0/bridge/
  class/net/vethab12/type = 1
  class/net/vethab12/ifindex = 6
  class/net/vethab12/iflink = 6
  class/net/tun0/type = 65534
  class/net/tun0/ifindex = 7
  class/net/tun0/tun_flags = 0x1001
  class/net/vxlan1/type = 1
  class/net/vxlan1/ifindex = 8
  class/net/vxlan1/uevent = DEVTYPE=vxlan
  class/net/ib0/type = 32
  class/net/ib0/ifindex = 9
  class/net/ib0/device -> ../../../devices/pci/0000:17:00.0
  class/net/mac0/type = 1
  class/net/mac0/ifindex = 10
  class/net/mac0/uevent = INTERFACE=mac0\nDEVTYPE=macvlan
  class/net/ipip0/type = 768
  class/net/ipip0/ifindex = 11
  class/net/dummy0/type = 1
  class/net/dummy0/ifindex = 12
  class/net/dummy0/iflink = 12
  class/net/bonding_masters = bond0
)";

TEST(NetworkInterface, EveryKindIsRecognized) {
  const test::FakeSysfs fake(kCrowdedNode);
  std::map<std::string, std::string> kinds;
  for (const auto& [name, interface] : by_name(fake)) kinds[name] = name_of(interface.kind);
  const std::map<std::string, std::string> expected{
      {"lo", "loopback"},    {"eth0", "physical"}, {"bond0", "bond"},   {"bond0.8", "vlan"},
      {"docker0", "bridge"}, {"vethab12", "veth"}, {"tun0", "tun"},     {"vxlan1", "tunnel"},
      {"ib0", "ipoib"},      {"mac0", "macvlan"},  {"ipip0", "tunnel"}, {"dummy0", "other"}};
  EXPECT_EQ(kinds, expected);
}

TEST(NetworkInterface, AreInIndexOrder) {
  const test::FakeSysfs fake(kCrowdedNode);
  const auto interfaces = read_network_interfaces(fake.root());
  EXPECT_EQ(interfaces.front().name, "lo");
  EXPECT_TRUE(std::is_sorted(interfaces.begin(), interfaces.end(),
                             [](const auto& a, const auto& b) { return a.index < b.index; }));
}

TEST(NetworkInterface, ReadsTheAttributesOfAPhysicalPort) {
  const test::FakeSysfs fake(kCrowdedNode);
  const NetworkInterface eth0 = by_name(fake).at("eth0");
  EXPECT_TRUE(eth0.up);
  EXPECT_TRUE(eth0.running);
  EXPECT_EQ(eth0.speed_mbps, 100000);
  EXPECT_EQ(eth0.full_duplex, true);
  EXPECT_EQ(eth0.mtu, 9000);
  EXPECT_EQ(eth0.master, "bond0");
  EXPECT_EQ(eth0.hardware_address, "0c:42:a1:00:00:01");
  EXPECT_EQ(eth0.bus_address, "0000:17:00.0");
  EXPECT_EQ(eth0.numa_node, 1);
  EXPECT_EQ(by_name(fake).at("bond0.8").lower, "bond0");
  EXPECT_EQ(by_name(fake).at("bond0").bond_mode, "active-backup 1");
}

TEST(NetworkInterface, VethWithAnotherNameIsRecognizedByItsPeer) {
  const test::FakeSysfs fake(R"(
    class/net/eth0/type = 1
    class/net/eth0/flags = 0x1003
    class/net/eth0/operstate = up
    class/net/eth0/ifindex = 2
    class/net/eth0/iflink = 7
    class/net/eth0/speed = 10000
  )");
  const NetworkInterface eth0 = by_name(fake).at("eth0");
  EXPECT_EQ(eth0.kind, InterfaceKind::veth);
  EXPECT_TRUE(eth0.running);
  EXPECT_FALSE(has_wire_speed(eth0.kind));
}

TEST(NetworkInterface, UnreportedAttributesAreAbsent) {
  const test::FakeSysfs fake(R"(
    class/net/eth0/type = 1
    class/net/eth0/speed = -1
    class/net/eth0/duplex = unknown
    class/net/eth0/device/numa_node = -1
  )");
  const NetworkInterface eth0 = by_name(fake).at("eth0");
  EXPECT_FALSE(eth0.speed_mbps);
  EXPECT_FALSE(eth0.full_duplex);
  EXPECT_FALSE(eth0.mtu);
  EXPECT_FALSE(eth0.numa_node);
  EXPECT_FALSE(eth0.running);
}

struct LinkState {
  std::string flags, operstate, carrier;
  bool running;
};

class RunningState : public testing::TestWithParam<LinkState> {};

TEST_P(RunningState, NeedsUpAndALink) {
  const auto& state = GetParam();
  const test::FakeSysfs fake("class/net/e/type = 1\nclass/net/e/flags = " + state.flags +
                             "\nclass/net/e/operstate = " + state.operstate +
                             "\nclass/net/e/carrier = " + state.carrier);
  EXPECT_EQ(by_name(fake).at("e").running, state.running);
}

INSTANTIATE_TEST_SUITE_P(Table, RunningState,
                         testing::Values(LinkState{"0x1003", "up", "1", true},
                                         LinkState{"0x1003", "down", "0", false},
                                         LinkState{"0x1003", "lowerlayerdown", "0", false},
                                         LinkState{"0x1003", "unknown", "1", true},
                                         LinkState{"0x1003", "unknown", "0", false},
                                         LinkState{"0x1002", "up", "1", false}));

TEST(NetworkInterface, MissingSysGivesNone) {
  const test::FakeSysfs fake("empty/");
  EXPECT_TRUE(read_network_interfaces(fake.root()).empty());
}

}  // namespace
}  // namespace ddp::fabric
