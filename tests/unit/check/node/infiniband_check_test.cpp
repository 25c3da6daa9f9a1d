// SPDX-License-Identifier: Apache-2.0
// Tests the findings about synthetic RDMA ports.
#include "ddp_runtime/check/node/infiniband_check.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/check/complaints.h"
#include "tests/unit/fabric/machine.h"
#include "tests/unit/fabric/node_values.h"

namespace ddp::check {
namespace {

using fabric::InfinibandPort;
using fabric::Node;

constexpr const char* kCard = "0000:18:00";

// Adds a healthy port below a root port of its own; `bus`: by default a card of its own.
InfinibandPort& add_port(Node& node, const std::string& device, double rate = 400,
                         const std::string& layer = "InfiniBand", const std::string& bus = "") {
  const std::string own = bus.empty() ? "0000:" + device + ":00.0" : bus;
  InfinibandPort& port = test::add_port(node, device, layer, rate, {"pci" + device, "x", own});
  port.phys_state = "LinkUp";
  port.rate_text = "a rate";
  port.board = "MT_0838";
  port.lid = 26;
  port.sm_lid = 1;
  test::add_gid(port, 0, "fe80::1", "IB/RoCE v1");
  test::add_gid(port, 1, "::ffff:10.0.0.1", "RoCE v2", device + "_net");
  return port;
}

InfinibandPort& add_down_port(Node& node, const std::string& device, const std::string& phys_state,
                              const std::string& layer = "InfiniBand",
                              const std::string& bus = "0000:28:00.0") {
  InfinibandPort& port = add_port(node, device, 10, layer, bus);
  port.state = "DOWN";
  port.phys_state = phys_state;
  return port;
}

// Adds a GPU beside the port.
void add_gpu_near(Node& node, const std::string& device) {
  test::add_gpu(node, {"pci" + device, "x", "gpu"});
}

void add_interface(Node& node, const std::string& name, const std::string& bus, bool up) {
  fabric::NetworkInterface& interface = test::add_interface(node, name);
  interface.bus_address = bus;
  interface.up = up;
  interface.running = false;
}

std::vector<Finding> findings_of(const Node& node) {
  return evaluate_infiniband(node, choose_compute_ports(node));
}

std::string complaints_of(const Node& node) {
  return complaints(findings_of(node));
}

std::string evidence_of(const Node& node, const std::string& check, const std::string& device) {
  for (const auto& finding : findings_of(node)) {
    if (finding.check == check && finding.device == device) return finding.evidence;
  }
  return "no such finding";
}

TEST(InfinibandCheck, HealthyNodesHaveNoComplaints) {
  Node node;
  EXPECT_TRUE(findings_of(node).empty());
  add_port(node, "m0");
  add_port(node, "m1");
  EXPECT_EQ(complaints_of(node), "");
}

// --- state

TEST(InfinibandCheck, PortWithoutALinkIsReported) {
  Node node;
  add_down_port(node, "m1", "Polling");
  EXPECT_EQ(complaints_of(node), "infiniband.state m1:1=CRITICAL") << "the node's only port";
  add_port(node, "m0");
  EXPECT_EQ(complaints_of(node), "infiniband.state m1:1=WARNING");
}

TEST(InfinibandCheck, HiddenStateIsUnknown) {
  Node node;
  add_port(node, "m0").state.clear();
  EXPECT_EQ(complaints_of(node), "infiniband.state m0:1=UNKNOWN");
}

TEST(InfinibandCheck, PortThatIsSwitchedOffIsFine) {
  Node node;
  add_down_port(node, "m1", "Disabled");
  EXPECT_EQ(complaints_of(node), "") << "an unused card";
  add_port(node, "m0");
  EXPECT_EQ(complaints_of(node), "");
  EXPECT_EQ(evidence_of(node, "infiniband.state", "m1:1"), "physical state Disabled: switched off");
}

// The drivers of Ethernet cards say "Disabled" without a cable, too.
TEST(InfinibandCheck, InterfaceDecidesWhetherAnEthernetPortIsOff) {
  for (const char* phys_state : {"Disabled", "Polling", "LinkUp"}) {
    Node node;
    add_port(node, "r0", 100, "Ethernet");
    add_down_port(node, "r1", phys_state, "Ethernet");
    add_interface(node, "eth1", "0000:28:00.0", true);
    add_interface(node, "ib1", "0000:28:00.0", true);  // of the device's other port
    node.interfaces[1].kind = fabric::InterfaceKind::ipoib;
    EXPECT_EQ(complaints_of(node), "infiniband.state r1:1=WARNING") << phys_state;
    node.interfaces[0].up = false;
    EXPECT_EQ(complaints_of(node), "") << phys_state;
    EXPECT_EQ(evidence_of(node, "infiniband.state", "r1:1"),
              std::string("physical state ") + phys_state + ": its interface eth1 is disabled");
    node.interfaces.clear();
    EXPECT_EQ(complaints_of(node),
              phys_state == std::string("Disabled") ? "" : "infiniband.state r1:1=WARNING");
  }
}

TEST(InfinibandCheck, UnpluggedPortOfAnUnusedInterfaceIsFine) {
  Node node;
  add_port(node, "m0");
  add_port(node, "r0", 100, "Ethernet");
  add_down_port(node, "r1", "Disabled", "Ethernet");
  add_interface(node, "eth1", "0000:28:00.0", true);
  EXPECT_EQ(complaints_of(node), "");
  test::add_route(node, "eth1", "10.0.0.0/24");
  EXPECT_EQ(complaints_of(node), "infiniband.state r1:1=WARNING");
  node.routes.clear();
  node.ports[0].state = node.ports[1].state = "DOWN";
  EXPECT_EQ(complaints_of(node),
            "infiniband.state m0:1=CRITICAL, infiniband.state r0:1=CRITICAL, "
            "infiniband.state r1:1=CRITICAL")
      << "no port of the node works";
}

TEST(InfinibandCheck, FreePortOfACardForStorageIsFine) {
  Node node;
  add_port(node, "m0");
  add_gpu_near(node, "m0");
  add_port(node, "s0", 200, "InfiniBand", "0000:29:00.0").board = "MT_0892";  // far from the GPU
  add_down_port(node, "s1", "Polling", "InfiniBand", "0000:29:00.1").board = "MT_0892";
  EXPECT_EQ(complaints_of(node), "");
  node.ports[1].state = "DOWN";  // no port of the card is active
  EXPECT_EQ(complaints_of(node), "infiniband.state s0:1=WARNING, infiniband.state s1:1=WARNING");
}

TEST(InfinibandCheck, FreePortOfARailsCardIsReported) {
  Node node;
  add_port(node, "m0", 400, "InfiniBand", std::string(kCard) + ".0");
  add_down_port(node, "m1", "Polling", "InfiniBand", std::string(kCard) + ".1");
  EXPECT_EQ(complaints_of(node), "infiniband.state m1:1=WARNING");
  for (auto& port : node.ports) port.board.clear();
  EXPECT_EQ(complaints_of(node), "infiniband.state m1:1=WARNING");
  Node mixed;  // a card for both link layers
  add_port(mixed, "m0", 400, "InfiniBand", "0000:38:00.0");
  add_down_port(mixed, "m1", "Polling", "InfiniBand", "0000:28:00.0");
  add_port(mixed, "r0", 100, "Ethernet", "0000:28:00.1");
  EXPECT_EQ(complaints_of(mixed), "infiniband.state m1:1=WARNING");
}

TEST(InfinibandCheck, PortWithoutASubnetManagerIsCriticalIfItIsTheOnlyOneOfItsKind) {
  for (const char* state : {"INIT", "ARMED"}) {
    Node node;
    add_port(node, "m2").state = state;
    add_port(node, "m0");
    EXPECT_EQ(complaints_of(node), "infiniband.state m2:1=CRITICAL") << "one of the rails";
    node.ports[0].board = "MT_0892";
    EXPECT_EQ(complaints_of(node), "infiniband.state m2:1=WARNING") << "another fabric";
    node.ports[0].board = node.ports[1].board = "";
    EXPECT_EQ(complaints_of(node), "infiniband.state m2:1=WARNING") << "of an unknown kind";
  }
}

// A subnet manager that restarts must not drain all nodes of its fabric.
TEST(InfinibandCheck, SubnetManagerThatIsDownIsNoFaultOfTheNode) {
  Node node;
  for (const char* device : {"m0", "m1"}) add_port(node, device).state = "INIT";
  const std::string both = "infiniband.state m0:1=WARNING, infiniband.state m1:1=WARNING";
  EXPECT_EQ(complaints_of(node), both);
  EXPECT_EQ(findings_of(node).front().action,
            "the link is up, but no subnet manager has configured it: check the subnet manager of "
            "the fabric before the node (`sminfo`)");
  add_port(node, "m2");
  EXPECT_EQ(complaints_of(node), both) << "an active port on the same board, for storage";
  node.ports.back().state = "DOWN";
  node.ports.back().phys_state = "Polling";
  EXPECT_EQ(complaints_of(node), both + ", infiniband.state m2:1=WARNING") << "a spare port";
  node.ports.back() = node.ports.front();
  add_port(node, "r0", 100, "Ethernet");
  EXPECT_EQ(complaints_of(node), both + ", infiniband.state m0:1=WARNING") << "and RoCE";
}

TEST(InfinibandCheck, PortThatRecoversFromALinkErrorIsUp) {
  Node node;
  add_port(node, "m0").state = "ACTIVE_DEFER";
  EXPECT_EQ(complaints_of(node), "");
  EXPECT_EQ(evidence_of(node, "infiniband.rate", "m0:1"), "");
}

// --- rate

TEST(InfinibandCheck, SlowPortAmongFastOnesIsCritical) {
  Node node;
  add_port(node, "m0");
  add_port(node, "m1", 200);
  EXPECT_EQ(complaints_of(node), "infiniband.rate m1:1=WARNING") << "either may be intended";
  add_port(node, "m2");
  EXPECT_EQ(complaints_of(node), "infiniband.rate m1:1=CRITICAL");
  add_port(node, "m3", 200);
  EXPECT_EQ(complaints_of(node), "infiniband.rate m1:1=WARNING, infiniband.rate m3:1=WARNING");
}

TEST(InfinibandCheck, PortsOfOneCardMayDiffer) {
  Node node;
  for (const char* function : {"0", "1", "2"}) {
    add_port(node, std::string("m") + function, 25, "Ethernet",
             std::string(kCard) + "." + function);
  }
  node.ports[2].rate_gbps = 1;
  EXPECT_EQ(complaints_of(node), "infiniband.rate m2:1=WARNING");
}

TEST(InfinibandCheck, PortsOnOtherOrUnknownBoardsAreNotFaulty) {
  Node node;
  for (const char* device : {"m0", "m1", "m2"}) add_port(node, device);
  node.ports[2].rate_gbps = 200;
  node.ports[2].board = "MT_0892";
  EXPECT_EQ(complaints_of(node), "");
  for (auto& port : node.ports) port.board.clear();
  EXPECT_EQ(complaints_of(node), "infiniband.rate m2:1=WARNING");
}

// The plan leaves out a damaged rail because of its rate. It is a rail all the same.
TEST(InfinibandCheck, DamagedRailIsCriticalAlthoughThePlanLeavesItOut) {
  Node node;
  for (const char* device : {"m0", "m1", "m2"}) {
    add_port(node, device);
    add_gpu_near(node, device);
  }
  node.ports[1].rate_gbps = 100;
  ASSERT_NE(choose_compute_ports(node).find_left_out(1), nullptr);
  EXPECT_EQ(complaints_of(node), "infiniband.rate m1:1=CRITICAL");
  for (auto& port : node.ports) port.board.clear();
  EXPECT_EQ(complaints_of(node), "infiniband.rate m1:1=WARNING") << "beside a GPU, board unknown";
  for (auto& port : node.ports) port.board = "MT_0838";
  node.gpus.erase(node.gpus.begin() + 1);  // the port is no longer near a GPU, as the others are
  EXPECT_EQ(complaints_of(node), "");
  EXPECT_EQ(evidence_of(node, "infiniband.rate", "m1:1"),
            "left out by the plan: less than half the rate");
}

TEST(InfinibandCheck, PortsForOtherPurposesAreNotCompared) {
  Node node;
  for (const char* device : {"m0", "m1", "m2"}) add_port(node, device);
  add_port(node, "s0", 100, "Ethernet");
  add_port(node, "v0", 25).physical_function = "0000:m0:00.0";
  add_port(node, "rxe0", 2.5, "Ethernet").bus_address.clear();
  EXPECT_EQ(complaints_of(node), "");
  EXPECT_EQ(evidence_of(node, "infiniband.rate", "v0:1"),
            "left out by the plan: a virtual function");
}

TEST(InfinibandCheck, HiddenRateIsUnknown) {
  Node node;
  add_port(node, "m0").rate_gbps.reset();
  add_port(node, "m1");
  EXPECT_EQ(complaints_of(node), "infiniband.rate m0:1=UNKNOWN");
}

struct Fault {
  const char* machine;
  const char* device;
  double rate;
  const char* complaints;
};

TEST(InfinibandCheck, OneSlowRailOfARealNodeIsFound) {
  for (const Fault& fault :
       {Fault{"dgx_h100", "mlx5_5", 100, "infiniband.rate mlx5_5:1=CRITICAL"},
        Fault{"dgx_h100", "mlx5_5", 200, "infiniband.rate mlx5_5:1=CRITICAL"},
        Fault{"dpu_beside_rails", "mlx5_3", 100, "infiniband.rate mlx5_3:1=CRITICAL"},
        Fault{"mixed_distance_ib", "mlx5_4", 100, "infiniband.rate mlx5_4:1=CRITICAL"},
        Fault{"roce_ipv4", "mlx5_0", 200, "infiniband.rate mlx5_0:1=CRITICAL"},
        Fault{"four_bonds_one_exit", "mlx5_bond_0", 100,
              "infiniband.rate mlx5_bond_0:1=CRITICAL"}}) {
    Node node = test::Machine(test::machine_text(fault.machine)).read();
    for (auto& port : node.ports) {
      if (port.device == fault.device) port.rate_gbps = fault.rate;
    }
    EXPECT_EQ(complaints_of(node), fault.complaints) << fault.machine << " " << fault.rate;
  }
}

// --- addresses

TEST(InfinibandCheck, MissingSubnetManagerIsReported) {
  Node node;
  add_port(node, "m0").lid = 0;
  EXPECT_EQ(complaints_of(node), "infiniband.lid m0:1=WARNING");
  node.ports[0].lid = 26;
  node.ports[0].sm_lid = 0;
  EXPECT_EQ(complaints_of(node), "infiniband.lid m0:1=WARNING");
  Node roce;
  add_port(roce, "r0", 100, "Ethernet").lid = 0;
  EXPECT_EQ(complaints_of(roce), "");
}

TEST(InfinibandCheck, RoceWithoutARoutableAddressIsReported) {
  Node node;
  add_port(node, "r0", 100, "Ethernet").gids.pop_back();  // link-local only
  EXPECT_EQ(complaints_of(node), "infiniband.gid r0:1=WARNING");
  add_port(node, "r1", 100, "Ethernet");
  EXPECT_EQ(complaints_of(node), "infiniband.gid r0:1=WARNING") << "one of the rails";
  node.ports[0].gids.clear();
  EXPECT_EQ(complaints_of(node), "infiniband.gid r0:1=WARNING") << "one of the rails";
  node.ports[0].board = "MT_0892";
  EXPECT_EQ(complaints_of(node), "") << "not one of the rails";
  Node infiniband;
  add_port(infiniband, "m0").gids.pop_back();  // as usual on InfiniBand
  EXPECT_EQ(complaints_of(infiniband), "");
}

TEST(InfinibandCheck, PortsHaveOneAddressFamily) {
  Node node;
  add_port(node, "r0", 100, "Ethernet").gids[1].address = "fd00::1";
  EXPECT_EQ(complaints_of(node), "") << "IPv6 only";
  add_port(node, "r1", 100, "Ethernet");
  EXPECT_EQ(complaints_of(node), "infiniband.gid r0:1=WARNING");
}

TEST(InfinibandCheck, HiddenGidsAreUnknown) {
  Node roce;
  for (auto& gid : add_port(roce, "r0", 100, "Ethernet").gids) gid.type.clear();
  EXPECT_EQ(complaints_of(roce), "infiniband.gid r0:1=UNKNOWN");
  Node node;
  add_port(node, "m0").gids.clear();
  EXPECT_EQ(complaints_of(node), "infiniband.gid m0:1=UNKNOWN");
}

}  // namespace
}  // namespace ddp::check
