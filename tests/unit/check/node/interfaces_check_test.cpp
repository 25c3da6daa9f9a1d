// SPDX-License-Identifier: Apache-2.0
// Tests the findings about synthetic sets of interfaces.
#include "ddp_runtime/check/node/interfaces_check.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/check/complaints.h"
#include "tests/unit/fabric/node_values.h"

namespace ddp::check {
namespace {

using fabric::InterfaceKind;
using fabric::NetworkInterface;
using fabric::Node;

NetworkInterface port(const std::string& name, int speed = 100000, int mtu = 9000) {
  NetworkInterface interface;
  interface.name = name;
  interface.kind = InterfaceKind::physical;
  interface.up = interface.running = true;
  interface.speed_mbps = speed;
  interface.mtu = mtu;
  return interface;
}

NetworkInterface of_kind(const std::string& name, InterfaceKind kind) {
  NetworkInterface interface = port(name);
  interface.kind = kind;
  return interface;
}

NetworkInterface bond(const std::string& name, const std::string& mode) {
  NetworkInterface interface = of_kind(name, InterfaceKind::bond);
  interface.bond_mode = mode;
  return interface;
}

Node node_with(const std::vector<NetworkInterface>& interfaces) {
  Node node;
  node.interfaces = interfaces;
  return node;
}

std::string interface_complaints(const Node& node, const InterfaceExpectations& expected = {}) {
  return complaints(evaluate_interfaces(node, choose_compute_ports(node), expected));
}

std::string interface_complaints(const std::vector<NetworkInterface>& interfaces,
                                 const InterfaceExpectations& expected = {}) {
  return interface_complaints(node_with(interfaces), expected);
}

TEST(InterfacesCheck, InterfaceThatNoListCanContainIsNamedAndIsAWayOut) {
  Node node;
  node.unlisted = {port("a,b"), port("b\xc3\xa4r")};
  EXPECT_EQ(interface_complaints(node),
            "interface.name 'a,b'=WARNING, interface.name 'b??r'=WARNING");
}

TEST(InterfacesCheck, HealthyNodesHaveNoComplaints) {
  EXPECT_EQ(interface_complaints({of_kind("lo", InterfaceKind::loopback), port("eth0")}), "");
  // Ports outside a bond may differ.
  EXPECT_EQ(interface_complaints({port("eth0"), port("eth1", 1000)}), "");
  // A virtual node: its only interface is a veth.
  EXPECT_EQ(interface_complaints(
                {of_kind("lo", InterfaceKind::loopback), of_kind("eth0", InterfaceKind::veth)}),
            "");
}

TEST(InterfacesCheck, AnInterfaceBesidesLoopbackMustRun) {
  EXPECT_EQ(interface_complaints({of_kind("lo", InterfaceKind::loopback)}),
            "interface.any=CRITICAL");
  EXPECT_EQ(interface_complaints(Node()), "interface.any=CRITICAL");
}

// --- links

TEST(InterfacesCheck, UsedInterfaceWithoutALinkIsReported) {
  NetworkInterface eth1 = port("eth1");
  eth1.running = false;
  Node node = node_with({port("eth0"), eth1});
  test::add_route(node, "eth1", "10.0.0.0/24");
  EXPECT_EQ(interface_complaints(node), "interface.link eth1=WARNING");
  node.interfaces[1].up = false;  // disabled on purpose
  EXPECT_EQ(interface_complaints(node), "");
  eth1.master = "bond0";
  EXPECT_EQ(interface_complaints({port("eth0"), eth1}), "interface.link eth1=WARNING");
}

TEST(InterfacesCheck, RailWithoutALinkIsReported) {
  NetworkInterface eth1 = port("eth1");
  eth1.running = false;
  eth1.bus_address = "0000:28:00.0";
  Node node = node_with({port("eth0"), eth1});
  test::add_port(node, "m0", "Ethernet", 100).board = "B";
  test::add_port(node, "m1", "Ethernet", 100, {"0000:28:00.0"}).board = "B";
  node.ports[1].state = "DOWN";
  EXPECT_EQ(interface_complaints(node), "interface.link eth1=WARNING");
  node.ports[1].board = "C";
  EXPECT_EQ(interface_complaints(node), "");
}

// Systems enable all on-board ports, whether or not they have a cable.
TEST(InterfacesCheck, FreeInterfacesHaveOneFindingInTotal) {
  std::vector<NetworkInterface> interfaces{port("eth0")};
  for (int i = 1; i < 12; ++i) {
    interfaces.push_back(port("eth" + std::to_string(i)));
    interfaces.back().running = false;
  }
  Node node = node_with(interfaces);
  test::add_route(node, "eth1", "fe80::/64");
  test::add_route(node, "eth1", "ff00::/8");
  EXPECT_EQ(interface_complaints(node), "");
  std::string evidence;
  for (const auto& finding : evaluate_interfaces(node, {}, {})) {
    if (finding.check == "interface.link" && finding.device.empty()) evidence += finding.evidence;
  }
  EXPECT_EQ(evidence,
            "eth1, eth2, eth3, eth4, eth5, eth6, eth7, eth8 and 3 more: enabled, but without "
            "carrier and without a network");
  node.interfaces[0] = of_kind("veth0", InterfaceKind::veth);  // none with a wire runs
  EXPECT_EQ(interface_complaints(node), "interface.link=WARNING");
}

TEST(InterfacesCheck, NamedInterfaceMustRun) {
  NetworkInterface eth1 = port("eth1");
  eth1.running = false;
  EXPECT_EQ(interface_complaints({port("eth0"), eth1}, {.names = {"eth0"}}), "");
  EXPECT_EQ(interface_complaints({port("eth0"), eth1}, {.names = {"eth1", "eth9"}}),
            "interface.link eth1=CRITICAL, interface.link eth9=CRITICAL");
}

// --- speed

TEST(InterfacesCheck, SlowPortOfABondIsReported) {
  auto first = port("eth0");
  auto second = port("eth1", 40000);
  first.master = second.master = "bond0";
  EXPECT_EQ(interface_complaints({first, second, bond("bond0", "802.3ad 4")}),
            "interface.speed eth1=CRITICAL");
  EXPECT_EQ(interface_complaints({first, second, bond("bond0", "")}),
            "interface.speed eth1=WARNING");
  EXPECT_EQ(interface_complaints({first, second, bond("bond0", "active-backup 1")}), "");
  second.speed_mbps = 60000;
  EXPECT_EQ(interface_complaints({first, second, bond("bond0", "balance-xor 2")}),
            "interface.speed eth1=WARNING");
  second.master.clear();  // a management port may be slow
  EXPECT_EQ(interface_complaints({first, second, bond("bond0", "802.3ad 4")}), "");
}

TEST(InterfacesCheck, RequestedSpeedIsRequired) {
  EXPECT_EQ(interface_complaints({port("eth0", 100000)}, {.speed_mbps = 100000}), "");
  EXPECT_EQ(interface_complaints({port("eth0", 60000)}, {.speed_mbps = 100000}),
            "interface.speed eth0=WARNING");
  EXPECT_EQ(interface_complaints({port("eth0", 50000)}, {.speed_mbps = 100000}),
            "interface.speed eth0=CRITICAL");
}

TEST(InterfacesCheck, ManagementNeedNotMeetTheRequests) {
  const InterfaceExpectations expected{.mtu = 9000, .speed_mbps = 100000};
  const NetworkInterface management = port("eno1", 1000, 1500);
  EXPECT_EQ(interface_complaints({management, port("ens1")}, expected), "");
  EXPECT_EQ(interface_complaints({management, port("ens1", 10000)}, expected),
            "interface.speed ens1=CRITICAL");
  EXPECT_EQ(interface_complaints({port("ens1"), port("ens2", 50000)}, expected),
            "interface.speed ens2=CRITICAL");
  EXPECT_EQ(interface_complaints({port("ens1"), port("ens2", 40000)}, expected), "");
  NetworkInterface unplugged = port("ens1");
  unplugged.running = false;  // now the fastest is too slow
  EXPECT_EQ(interface_complaints({management, unplugged}, expected),
            "interface.speed eno1=CRITICAL, interface.mtu eno1=CRITICAL");
  NetworkInterface usb = port("usb0", 1000, 1500);
  usb.speed_mbps.reset();
  EXPECT_EQ(interface_complaints({usb, port("ens1")}, expected), "");
  EXPECT_EQ(
      interface_complaints({management, port("ens1")}, {.speed_mbps = 100, .names = {"eno1"}}), "");
  EXPECT_EQ(
      interface_complaints({management, port("ens1")}, {.speed_mbps = 9000, .names = {"eno1"}}),
      "interface.speed eno1=CRITICAL");
}

TEST(InterfacesCheck, RequestsAreAboutTheInterfacesOfTheComputePorts) {
  Node node = node_with({port("eth0", 200000), port("rail0", 400000), port("rail1", 100000)});
  for (int i = 0; i < 3; ++i) {
    node.interfaces[static_cast<std::size_t>(i)].bus_address =
        "0000:" + std::to_string(i) + "8:00.0";
  }
  const auto add = [&node](const std::string& device, const std::string& bus, double rate) {
    test::add_port(node, device, "Ethernet", rate, {"pci" + bus, "x", bus}).board =
        device.substr(0, 1);
  };
  add("front", "0000:08:00.0", 200);
  add("rail_0", "0000:18:00.0", 400);
  add("rail_1", "0000:28:00.0", 100);
  test::add_gpu(node, {"pci0000:18:00.0", "x", "gpu"});
  test::add_gpu(node, {"pci0000:28:00.0", "x", "gpu"});
  EXPECT_EQ(interface_complaints(node, {.speed_mbps = 400000}), "interface.speed rail1=CRITICAL");
}

TEST(InterfacesCheck, PortsBelowANamedBondOrVlanMustMeetTheRequests) {
  NetworkInterface member = port("eth0");
  member.master = "bond0";
  EXPECT_EQ(interface_complaints({member, port("eth9", 400000), bond("bond0", "802.3ad 4")},
                                 {.speed_mbps = 200000, .names = {"bond0"}}),
            "interface.speed eth0=CRITICAL");
  NetworkInterface vlan = of_kind("eth0.8", InterfaceKind::vlan);
  vlan.lower = "eth0";
  EXPECT_EQ(interface_complaints({port("eth0"), port("eth9", 400000), vlan},
                                 {.speed_mbps = 200000, .names = {"eth0.8"}}),
            "interface.speed eth0=CRITICAL");
}

// If a speed is requested, a driver that does not report its speed does not pass.
TEST(InterfacesCheck, MissingSpeedIsUnknownIfOneIsRequested) {
  NetworkInterface eth0 = port("eth0");
  eth0.speed_mbps.reset();
  EXPECT_EQ(interface_complaints({eth0}, {.speed_mbps = 1000}), "interface.speed eth0=UNKNOWN");
  EXPECT_EQ(interface_complaints({eth0}), "");
  for (const auto& finding : evaluate_interfaces(node_with({eth0}), {}, {})) {
    EXPECT_NE(finding.check, "interface.speed");  // not even with an OK finding
  }
}

TEST(InterfacesCheck, HalfDuplexIsReported) {
  NetworkInterface eth0 = port("eth0");
  eth0.full_duplex = false;
  EXPECT_EQ(interface_complaints({eth0}), "interface.speed eth0=WARNING");
}

// --- MTU

TEST(InterfacesCheck, MtuMustFitTheRequestAndTheInterfaceBelow) {
  EXPECT_EQ(interface_complaints({port("eth0")}, {.mtu = 9000}), "");
  EXPECT_EQ(interface_complaints({port("eth0")}, {.mtu = 1500}), "interface.mtu eth0=CRITICAL");
  NetworkInterface vlan = of_kind("eth0.8", InterfaceKind::vlan);
  vlan.lower = "eth0";
  EXPECT_EQ(interface_complaints({port("eth0", 100000, 9000), vlan}), "");
  EXPECT_EQ(interface_complaints({port("eth0", 100000, 1500), vlan}),
            "interface.mtu eth0.8=CRITICAL");
}

}  // namespace
}  // namespace ddp::check
