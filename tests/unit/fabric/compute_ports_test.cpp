// SPDX-License-Identifier: Apache-2.0
// The ports that carry the data, on nodes with several fabrics and on nodes with one.
#include "spank_plugin/fabric/choice/compute_ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

using test::add_gid;
using test::add_gpu;
using test::add_port;
using testing::ElementsAre;
using testing::IsEmpty;

PciPath at(const std::string& root, const std::string& device) {
  return {"pci" + root, root + ":01.0", device};
}

std::string list_of(const Node& node) {
  return exact_port_list(node, choose_compute_ports(node).ports);
}

std::vector<std::string> texts_of(const Node& node, const std::vector<LeftOutPort>& ports) {
  std::vector<std::string> texts;
  for (const auto& entry : ports) {
    texts.push_back(name_of(node.ports[entry.port]) + " (" + entry.reason + ")");
  }
  return texts;
}

std::vector<std::string> left_out_of(const Node& node) {
  return texts_of(node, choose_compute_ports(node).left_out);
}

TEST(ComputePorts, AllPortsOfOneKindAreUsed) {
  Node node;
  add_port(node, "mlx5_0", "InfiniBand", 400, at("0000:15", "0000:18:00.0"));
  add_port(node, "mlx5_1", "InfiniBand", 400, at("0000:85", "0000:88:00.0"));
  add_gpu(node, at("0000:15", "0000:17:00.0"));
  EXPECT_THAT(left_out_of(node), IsEmpty());
  EXPECT_EQ(list_of(node), "=mlx5_0:1,mlx5_1:1");
}

TEST(ComputePorts, NoPortsGiveNone) {
  Node node;
  add_port(node, "efa_0", "Unspecified", 100);
  add_port(node, "mlx5_0", "InfiniBand", 400).state = "DOWN";
  EXPECT_THAT(choose_compute_ports(node).ports, IsEmpty());
  EXPECT_THAT(left_out_of(node), IsEmpty());
}

TEST(ComputePorts, OtherLinkLayerIsLeftOut) {
  Node node;
  add_port(node, "mlx5_0", "InfiniBand", 200);
  add_port(node, "mlx5_1", "InfiniBand", 200);
  add_port(node, "mlx5_2", "Ethernet", 200);
  EXPECT_THAT(left_out_of(node), ElementsAre("mlx5_2:1 (Ethernet beside InfiniBand)"));
  EXPECT_EQ(list_of(node), "=mlx5_0:1,mlx5_1:1");
}

// GB200: the ports share no root port with a GPU, and the DPUs for storage have half the rate.
TEST(ComputePorts, DpuOfHalfTheRateIsLeftOutUnlessNearAGpu) {
  Node node;
  add_port(node, "rocep0", "Ethernet", 400, at("0000:00", "0000:03:00.0"));
  add_port(node, "rocep1", "Ethernet", 400, at("0002:00", "0002:03:00.0"));
  add_port(node, "mlx5_4", "Ethernet", 200, at("0010:00", "0010:03:00.0"));
  add_gpu(node, at("0008:00", "0008:01:00.0"));
  EXPECT_THAT(left_out_of(node), ElementsAre("mlx5_4:1 (half the rate, and not near a GPU)"));
  add_gpu(node, at("0010:00", "0010:04:00.0"));
  add_gpu(node, at("0000:00", "0000:04:00.0"));
  EXPECT_THAT(left_out_of(node), IsEmpty());
}

TEST(ComputePorts, SlowerPortWithTheDefaultRouteIsLeftOut) {
  Node node;
  add_gid(add_port(node, "mlx5_0", "Ethernet", 400), 3, "0000:0000:0000:0000:0000:ffff:0a0a:0009",
          "RoCE v2", "rail0");
  add_gid(add_port(node, "mlx5_1", "Ethernet", 300), 3, "0000:0000:0000:0000:0000:ffff:0a01:0009",
          "RoCE v2", "eth0");
  EXPECT_THAT(left_out_of(node), IsEmpty());
  test::add_route(node, "eth0", "0.0.0.0/0");
  EXPECT_THAT(left_out_of(node), ElementsAre("mlx5_1:1 (slower, and with the default route)"));
}

TEST(ComputePorts, FabricNearTheGpusWinsOverMoreBandwidth) {
  Node node;
  add_port(node, "mlx5_0", "InfiniBand", 100, at("0000:15", "0000:18:00.0"));
  add_port(node, "mlx5_1", "Ethernet", 200, at("0000:60", "0000:63:00.0"));
  add_port(node, "mlx5_2", "Ethernet", 200, at("0000:60", "0000:63:00.1"));
  EXPECT_EQ(list_of(node), "=mlx5_1:1,mlx5_2:1");
  add_gpu(node, at("0000:15", "0000:17:00.0"));
  EXPECT_EQ(list_of(node), "=mlx5_0:1");
}

TEST(ComputePorts, InfiniBandWinsBetweenEqualFabrics) {
  Node node;
  add_port(node, "mlx5_0", "Ethernet", 200);
  add_port(node, "mlx5_1", "InfiniBand", 200);
  EXPECT_EQ(list_of(node), "=mlx5_1:1");
}

TEST(ComputePorts, PortsBelowHalfTheRateAreManagement) {
  Node node;
  add_port(node, "mlx5_0", "Ethernet", 400);
  add_port(node, "mlx5_1", "Ethernet", 200);
  EXPECT_THAT(left_out_of(node), IsEmpty());
  add_port(node, "mlx5_2", "Ethernet", 100);
  EXPECT_THAT(left_out_of(node), ElementsAre("mlx5_2:1 (less than half the rate)"));
}

TEST(ComputePorts, PortsOfUnknownRateAreKept) {
  Node node;
  add_port(node, "mlx5_0", "InfiniBand", 400);
  add_port(node, "mlx5_1", "InfiniBand", 0);
  EXPECT_THAT(left_out_of(node), IsEmpty());
}

TEST(ComputePorts, BondWithTheDefaultRouteIsManagement) {
  Node node;
  add_gid(add_port(node, "mlx5_0", "Ethernet", 200), 3, "::ffff:10.0.1.1");
  add_gid(add_port(node, "mlx5_bond_0", "Ethernet", 200), 3, "::ffff:10.0.0.1", "RoCE v2", "bond0");
  EXPECT_THAT(left_out_of(node), IsEmpty());
  test::add_route(node, "bond0", "0.0.0.0/0");
  EXPECT_THAT(left_out_of(node), ElementsAre("mlx5_bond_0:1 (bond with the default route)"));
  Node alone;  // no other port to use
  add_gid(add_port(alone, "mlx5_bond_0", "Ethernet", 200), 3, "::ffff:10.0.0.1", "RoCE v2",
          "bond0");
  test::add_route(alone, "bond0", "0.0.0.0/0");
  EXPECT_EQ(list_of(alone), "=mlx5_bond_0:1");
}

TEST(ComputePorts, FarPortsAreLeftOutOnlyIfTheOthersAreNear) {
  Node node;
  add_port(node, "mlx5_0", "InfiniBand", 400, at("0000:15", "0000:18:00.0"));
  add_port(node, "mlx5_1", "InfiniBand", 200, at("0000:26", "0000:29:00.0"));
  add_gpu(node, at("0000:15", "0000:17:00.0"));
  EXPECT_THAT(left_out_of(node), ElementsAre("mlx5_1:1 (far from every GPU)"));
  add_port(node, "mlx5_2", "InfiniBand", 400, at("0000:36", "0000:39:00.0"));
  EXPECT_THAT(left_out_of(node), IsEmpty());
}

// The table is that of machines where no port shares a root port with a GPU.
TEST(ComputePorts, FartherPortsByNumaDistanceAreLeftOut) {
  Node node;
  add_port(node, "mlx5_0", "InfiniBand", 400, at("0000:15", "0000:18:00.0")).numa_node = 0;
  add_port(node, "mlx5_1", "InfiniBand", 200, at("0001:15", "0001:18:00.0")).numa_node = 1;
  add_gpu(node, at("0008:00", "0008:01:00.0"), 0);
  EXPECT_THAT(left_out_of(node), ElementsAre("mlx5_1:1 (on a NUMA node farther from every GPU)"));
  node.ports[1].numa_node.reset();
  EXPECT_THAT(left_out_of(node), IsEmpty()) << "its location is unknown";
  node.ports[1].numa_node = 1;
  node.numa_distances.set(0, 1, 10);
  EXPECT_THAT(left_out_of(node), IsEmpty()) << "not farther";
}

TEST(ComputePorts, NumaDistanceDoesNotMakeASlowPortTheComputeFabric) {
  Node node;
  add_port(node, "mlx5_0", "InfiniBand", 400).numa_node = 0;
  add_port(node, "mlx5_1", "InfiniBand", 200).numa_node = 1;
  add_gpu(node, {}, 1);
  EXPECT_EQ(list_of(node), "=mlx5_0:1,mlx5_1:1");
}

TEST(ComputePorts, PortBelowAnotherRootPortIsFar) {
  Node node;
  add_port(node, "mlx5_0", "InfiniBand", 400, {"pci0000:15", "0000:15:01.0", "0000:18:00.0"});
  add_port(node, "mlx5_1", "InfiniBand", 200, {"pci0000:15", "0000:15:03.0", "0000:29:00.0"});
  add_gpu(node, {"pci0000:15", "0000:15:01.0", "0000:17:00.0"});
  EXPECT_THAT(left_out_of(node), ElementsAre("mlx5_1:1 (far from every GPU)"));
}

TEST(ComputePorts, AreListedInPciOrder) {
  Node node;
  add_port(node, "mlx5_0", "InfiniBand", 400, at("0000:85", "0000:88:00.0"));
  add_port(node, "mlx5_1", "InfiniBand", 400, at("0000:15", "0000:18:00.0"));
  EXPECT_EQ(list_of(node), "=mlx5_1:1,mlx5_0:1");
}

// --- ports that are no use beside others

TEST(ComputePorts, SoftwareDevicesAreLeftOutBesideRealOnes) {
  Node node;
  add_port(node, "rxe0", "Ethernet", 400);
  EXPECT_EQ(list_of(node), "=rxe0:1");
  add_port(node, "mlx5_0", "Ethernet", 100, at("0000:15", "0000:18:00.0"));
  EXPECT_EQ(list_of(node), "=mlx5_0:1");
  EXPECT_THAT(left_out_of(node), ElementsAre("rxe0:1 (a software device)"));
  node.ports[0].bus_address = "0000:08:00.0";
  node.ports[0].carrier_interface = "eth0";
  EXPECT_EQ(list_of(node), "=mlx5_0:1");
}

// Adds a port of a card, and a virtual function of it.
void add_function(Node& node) {
  add_port(node, "mlx5_0", "Ethernet", 100, at("0000:81", "0000:82:00.0"));
  add_port(node, "mlx5_1", "Ethernet", 100, at("0000:81", "0000:82:00.2")).physical_function =
      "0000:82:00.0";
}

TEST(ComputePorts, VirtualFunctionsAreLeftOutBesideTheirDevices) {
  Node node;
  add_function(node);
  EXPECT_EQ(list_of(node), "=mlx5_0:1");
  EXPECT_THAT(left_out_of(node), ElementsAre("mlx5_1:1 (a virtual function)"));
  node.ports[0].state = "DOWN";
  EXPECT_EQ(list_of(node), "=mlx5_1:1");
}

// The hypervisor's system may give the addresses to the functions only.
TEST(ComputePorts, VirtualFunctionsAreUsedIfTheirDeviceHasNoAddress) {
  Node node;
  add_function(node);
  add_gid(node.ports[0], 0, "fe80::1");
  add_gid(node.ports[1], 3, "::ffff:10.0.0.1");
  EXPECT_EQ(list_of(node), "=mlx5_1:1");
}

TEST(ComputePorts, PortsWithoutAnAddressAreLeftOutBesideOthers) {
  Node node;
  add_gid(add_port(node, "mlx5_0", "Ethernet", 100), 0, "fe80::1");
  EXPECT_EQ(list_of(node), "=mlx5_0:1") << "no other port";
  add_gid(add_port(node, "mlx5_1", "Ethernet", 100), 0, "fe80::2", "");  // its type is hidden
  EXPECT_THAT(left_out_of(node),
              ElementsAre("mlx5_0:1 (no RoCE v2 address that other nodes can reach)"));
}

TEST(ComputePorts, PortsWithoutAnyGidAreLeftOutIfTheKernelShowsGids) {
  Node node;
  add_port(node, "mlx5_0", "Ethernet", 100);
  InfinibandPort& other = add_port(node, "mlx5_1", "Ethernet", 100);
  add_gid(other, 3, "::ffff:10.0.0.1", "");
  EXPECT_EQ(list_of(node), "=mlx5_0:1,mlx5_1:1");
  other.gids[0].type = "RoCE v2";
  EXPECT_EQ(list_of(node), "=mlx5_1:1");
}

TEST(ComputePorts, IwarpAndUsnicAreNeverUsed) {
  Node node;
  add_port(node, "irdma0", "Ethernet", 100).node_type = "RNIC";
  add_port(node, "usnic_0", "Ethernet", 40).node_type = "usNIC";
  add_port(node, "usnic_1", "Ethernet", 40).node_type = "usNIC UDP";
  EXPECT_THAT(choose_compute_ports(node).ports, IsEmpty());
  EXPECT_THAT(left_out_of(node), ElementsAre("irdma0:1 (iWARP, which NCCL cannot use)",
                                             "usnic_0:1 (usNIC, which NCCL cannot use)",
                                             "usnic_1:1 (usNIC, which NCCL cannot use)"));
}

// --- ports as fast as the compute fabric

TEST(ComputePorts, DistantPortWithTheDefaultRouteIsLeftOut) {
  Node node;
  for (const char* root : {"0000:15", "0000:25"}) {
    add_gid(add_port(node, std::string("rail") + root[5], "Ethernet", 400, at(root, root)), 3,
            "::ffff:10.0.1.1");
    add_gpu(node, at(root, std::string(root) + "gpu"));
  }
  add_gid(add_port(node, "mlx5_9", "Ethernet", 400, at("0000:e0", "0000:e1:00.0")), 3,
          "::ffff:10.0.0.1", "RoCE v2", "eth0");
  EXPECT_THAT(left_out_of(node), IsEmpty());
  EXPECT_THAT(texts_of(node, choose_compute_ports(node).doubtful),
              ElementsAre("mlx5_9:1 (far from every GPU)"));
  test::add_route(node, "eth0", "0.0.0.0/0");
  EXPECT_THAT(left_out_of(node),
              ElementsAre("mlx5_9:1 (with the default route, and farther from the GPUs)"));
  node.ports.erase(node.ports.begin());
  node.port_paths.erase(node.port_paths.begin());
  EXPECT_THAT(left_out_of(node), IsEmpty()) << "half of the bandwidth";
  EXPECT_THAT(texts_of(node, choose_compute_ports(node).doubtful),
              ElementsAre("mlx5_9:1 (with the default route)"));
}

TEST(ComputePorts, NumaDistanceMakesAPortDistant) {
  Node node;
  for (const char* name : {"mlx5_0", "mlx5_1"}) {
    InfinibandPort& rail = add_port(node, name, "Ethernet", 400);
    rail.numa_node = 0;
    add_gid(rail, 3, "::ffff:10.0.1.1");
  }
  add_gpu(node, {}, 0);
  InfinibandPort& exit = add_port(node, "mlx5_2", "Ethernet", 400);
  add_gid(exit, 3, "::ffff:10.0.0.1", "RoCE v2", "eth0");
  test::add_route(node, "eth0", "0.0.0.0/0");
  EXPECT_THAT(left_out_of(node), IsEmpty()) << "its place is unknown";
  node.ports[2].numa_node = 0;
  EXPECT_THAT(left_out_of(node), IsEmpty()) << "as near as the others";
  node.ports[2].numa_node = 1;
  EXPECT_THAT(left_out_of(node),
              ElementsAre("mlx5_2:1 (with the default route, and farther from the GPUs)"));
}

TEST(ComputePorts, BondWithTheDefaultRouteStaysBesideItsGpu) {
  Node node;
  add_gid(add_port(node, "mlx5_bond_1", "Ethernet", 200, at("0000:25", "0000:28:00.0")), 3,
          "::ffff:10.0.1.1");
  add_gid(add_port(node, "mlx5_bond_0", "Ethernet", 200, at("0000:15", "0000:18:00.0")), 3,
          "::ffff:10.0.0.1", "RoCE v2", "bond0");
  test::add_route(node, "bond0", "0.0.0.0/0");
  add_gpu(node, at("0000:25", "0000:27:00.0"));
  EXPECT_EQ(list_of(node), "=mlx5_bond_1:1");
  add_gpu(node, at("0000:15", "0000:17:00.0"));
  EXPECT_EQ(list_of(node), "=mlx5_bond_0:1,mlx5_bond_1:1");
}

// A rail whose link is damaged may be as fast as the ports for storage.
TEST(ComputePorts, SlowRailDoesNotBringInTheStoragePorts) {
  Node node;
  for (const char* root : {"0000:15", "0000:25", "0000:35"}) {
    add_port(node, std::string("rail") + root[5], "InfiniBand", 400, at(root, root));
    add_gpu(node, at(root, std::string(root) + "gpu"));
  }
  add_port(node, "storage", "InfiniBand", 200, at("0000:e0", "0000:e1:00.0"));
  node.ports[1].rate_gbps = 200;
  EXPECT_EQ(list_of(node), "=rail1:1,rail2:1,rail3:1");
}

// --- NCCL's limit

void add_ports(Node& node, int count, const std::string& prefix, const std::string& root) {
  for (int i = 0; i < count; ++i) {
    const std::string number = std::to_string(100 + i);
    add_port(node, prefix + number, "InfiniBand", 100, at(root, root + ":" + number));
  }
}

TEST(ComputePorts, RailsBeyondTheFirst32NamesAreFound) {
  Node node;
  add_ports(node, 40, "a", "0000:80");
  add_port(node, "rail0", "InfiniBand", 400, at("0000:15", "0000:18:00.0"));
  add_gpu(node, at("0000:15", "0000:17:00.0"));
  EXPECT_EQ(list_of(node), "=rail0:1");
}

TEST(ComputePorts, NearestPortsKeepNcclsLimit) {
  Node node;
  add_ports(node, 30, "a", "0000:80");
  add_ports(node, 6, "rail", "0000:15");
  add_gpu(node, at("0000:15", "0000:17:00.0"));
  const ComputePorts chosen = choose_compute_ports(node);
  EXPECT_EQ(chosen.ports.size(), 6U);
  EXPECT_EQ(chosen.left_out.size(), 30U);
  EXPECT_EQ(chosen.left_out.front().by, LeftOutBy::limit);
  node.gpus.clear();  // no port is nearer than another
  EXPECT_EQ(choose_compute_ports(node).ports.size(), 32U);
}

// --- the site's file

TEST(ComputePorts, SitesPortsAreTheOnes) {
  Node node;
  add_port(node, "mlx5_0", "InfiniBand", 400);
  add_port(node, "mlx5_1", "Ethernet", 100);
  node.site.path = "/etc/slurm-ddp/fabric.conf";
  node.site.ib_hca = "mlx5_1:1";
  EXPECT_EQ(list_of(node), "=mlx5_1:1");
  EXPECT_THAT(left_out_of(node), ElementsAre("mlx5_0:1 (not in /etc/slurm-ddp/fabric.conf)"));
  node.site.ib_hca = "mlx5_7:1";  // not on this node
  EXPECT_EQ(list_of(node), "=mlx5_0:1");
}

}  // namespace
}  // namespace ddp::fabric
