// SPDX-License-Identifier: Apache-2.0
// Tests the findings about synthetic sets of interfaces.
#include "ddp_runtime/check/node/interfaces_check.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/check/complaints.h"

namespace ddp::check {
namespace {

using fabric::InterfaceKind;
using fabric::NetworkInterface;

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

std::string interface_complaints(const std::vector<NetworkInterface>& interfaces,
                                 const InterfaceExpectations& expected = {}) {
  return complaints(evaluate_interfaces(interfaces, expected));
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
  EXPECT_EQ(interface_complaints({}), "interface.any=CRITICAL");
}

TEST(InterfacesCheck, EnabledInterfaceWithoutALinkIsReported) {
  NetworkInterface eth1 = port("eth1");
  eth1.running = false;
  EXPECT_EQ(interface_complaints({port("eth0"), eth1}), "interface.link eth1=WARNING");
  eth1.up = false;  // disabled on purpose
  EXPECT_EQ(interface_complaints({port("eth0"), eth1}), "");
}

TEST(InterfacesCheck, SlowPortOfABondIsReported) {
  auto first = port("eth0");
  auto second = port("eth1", 40000);
  first.master = second.master = "bond0";
  EXPECT_EQ(interface_complaints({first, second}), "interface.speed eth1=CRITICAL");
  second.speed_mbps = 60000;
  EXPECT_EQ(interface_complaints({first, second}), "interface.speed eth1=WARNING");
  second.master.clear();  // a management port may be slow
  EXPECT_EQ(interface_complaints({first, second}), "");
}

TEST(InterfacesCheck, RequestedSpeedIsRequired) {
  EXPECT_EQ(interface_complaints({port("eth0", 100000)}, {.speed_mbps = 100000}), "");
  EXPECT_EQ(interface_complaints({port("eth0", 60000)}, {.speed_mbps = 100000}),
            "interface.speed eth0=WARNING");
  EXPECT_EQ(interface_complaints({port("eth0", 50000)}, {.speed_mbps = 100000}),
            "interface.speed eth0=CRITICAL");
}

// If a speed is requested, a driver that does not report its speed does not pass.
TEST(InterfacesCheck, MissingSpeedIsUnknownIfOneIsRequested) {
  NetworkInterface eth0 = port("eth0");
  eth0.speed_mbps.reset();
  EXPECT_EQ(interface_complaints({eth0}, {.speed_mbps = 1000}), "interface.speed eth0=UNKNOWN");
  EXPECT_EQ(interface_complaints({eth0}), "");
  for (const auto& finding : evaluate_interfaces(std::vector{eth0}, {})) {
    EXPECT_NE(finding.check, "interface.speed");  // not even with an OK finding
  }
}

TEST(InterfacesCheck, HalfDuplexIsReported) {
  NetworkInterface eth0 = port("eth0");
  eth0.full_duplex = false;
  EXPECT_EQ(interface_complaints({eth0}), "interface.speed eth0=WARNING");
}

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
