// SPDX-License-Identifier: Apache-2.0
// InfiniBand, RoCE and EFA ports of fake nodes.
#include "spank_plugin/fabric/node/infiniband_port.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/fabric/fake_sysfs.h"

namespace ddp::fabric {
namespace {

constexpr std::string_view kInfinibandNode = R"(
  devices/pci/0000:17:00.0/numa_node = 0
  class/infiniband/mlx5_0/device -> ../../../devices/pci/0000:17:00.0
  class/infiniband/mlx5_0/board_id = MT_0000000838
  class/infiniband/mlx5_0/fw_ver = 28.39.1002
  class/infiniband/mlx5_0/ports/1/link_layer = InfiniBand
  class/infiniband/mlx5_0/ports/1/state = 4: ACTIVE
  class/infiniband/mlx5_0/ports/1/phys_state = 5: LinkUp
  class/infiniband/mlx5_0/ports/1/rate = 400 Gb/sec (4X NDR)
  class/infiniband/mlx5_0/ports/1/lid = 0x1a
  class/infiniband/mlx5_0/ports/1/sm_lid = 0x1
  class/infiniband/mlx5_0/ports/1/gids/0 = fe80:0000:0000:0000:506b:4b03:00c0:ffee
  class/infiniband/mlx5_0/ports/1/gids/1 = 0000:0000:0000:0000:0000:0000:0000:0000
  class/infiniband/mlx5_0/node_type = 1: CA
  devices/pci/0000:17:00.1/physfn -> ../0000:17:00.0
  class/infiniband/mlx5_1/device -> ../../../devices/pci/0000:17:00.1
  class/infiniband/mlx5_1/ports/2/link_layer = Ethernet
  class/infiniband/mlx5_1/ports/2/state = 1: DOWN
  class/infiniband/mlx5_1/ports/2/phys_state = 3: Disabled
  class/infiniband/mlx5_1/ports/2/rate = 2.5 Gb/sec (1X SDR)
  class/infiniband/mlx5_1/ports/2/gids/10 = 0000:0000:0000:0000:0000:ffff:0a00:0001
  class/infiniband/mlx5_1/ports/2/gids/2 = fe80:0000:0000:0000:0e42:a1ff:fe00:0001
  class/infiniband/mlx5_1/ports/2/gid_attrs/types/10 = RoCE v2
  class/infiniband/mlx5_1/ports/2/gid_attrs/ndevs/10 = eth1
  class/infiniband/mlx5_1/ports/1/link_layer = Ethernet
  class/infiniband/rxe0/parent = eth0
  class/infiniband/rxe0/ports/1/link_layer = Ethernet
  class/infiniband/efa_0/ports/1/link_layer = Unspecified
  class/infiniband/efa_0/ports/1/state = 4: ACTIVE
)";

TEST(InfinibandPort, ReadsAllPortsByDeviceAndNumber) {
  const test::FakeSysfs fake(kInfinibandNode);
  std::string names;
  for (const auto& port : read_infiniband_ports(fake.root())) names += name_of(port) + " ";
  EXPECT_EQ(names, "efa_0:1 mlx5_0:1 mlx5_1:1 mlx5_1:2 rxe0:1 ");
}

TEST(InfinibandPort, ReadsTheAttributesOfAnActivePort) {
  const test::FakeSysfs fake(kInfinibandNode);
  const InfinibandPort port = read_infiniband_ports(fake.root()).at(1);
  EXPECT_EQ(port.link_layer, "InfiniBand");
  EXPECT_TRUE(port.active());
  EXPECT_EQ(port.phys_state, "LinkUp");
  EXPECT_EQ(port.rate_gbps, 400.0);
  EXPECT_EQ(port.rate_text, "400 Gb/sec (4X NDR)");
  EXPECT_EQ(port.lid, 26);
  EXPECT_EQ(port.sm_lid, 1);
  EXPECT_EQ(port.bus_address, "0000:17:00.0");
  EXPECT_EQ(port.numa_node, 0);
  EXPECT_EQ(port.board, "MT_0000000838");
  EXPECT_EQ(port.firmware, "28.39.1002");
  EXPECT_EQ(port.node_type, "CA");
  EXPECT_EQ(port.carrier_interface, "");
  EXPECT_EQ(read_infiniband_ports(fake.root()).at(4).carrier_interface, "eth0");
  EXPECT_EQ(port.physical_function, "");
  EXPECT_EQ(read_infiniband_ports(fake.root()).at(2).physical_function, "0000:17:00.0");
  ASSERT_EQ(port.gids.size(), 1U);  // the all-zero entry is unused
  EXPECT_EQ(port.gids[0].type, "");
}

TEST(InfinibandPort, ReadsTheGidsOfARocePortInNumericOrder) {
  const test::FakeSysfs fake(kInfinibandNode);
  const InfinibandPort port = read_infiniband_ports(fake.root()).at(3);
  EXPECT_FALSE(port.active());
  EXPECT_EQ(port.rate_gbps, 2.5);
  ASSERT_EQ(port.gids.size(), 2U);
  EXPECT_EQ(port.gids[0].index, 2);
  EXPECT_EQ(port.gids[1].index, 10);
  EXPECT_EQ(port.gids[1].type, "RoCE v2");
  EXPECT_EQ(port.gids[1].net_device, "eth1");
}

TEST(InfinibandPort, GidTableEndsAtALongRunOfUnusedEntries) {
  const auto indices_with_gap = [](int gap) {
    std::string tree = "class/infiniband/m/ports/1/gids/0 = fe80::1\n";
    for (int i = 1; i <= gap; ++i) {
      tree += "class/infiniband/m/ports/1/gids/" + std::to_string(i) + " = 0000:0000\n";
    }
    tree += "class/infiniband/m/ports/1/gids/" + std::to_string(gap + 1) + " = fe80::2\n";
    const test::FakeSysfs fake(tree);
    return read_infiniband_ports(fake.root()).at(0).gids.size();
  };
  EXPECT_EQ(indices_with_gap(31), 2U);
  EXPECT_EQ(indices_with_gap(32), 1U);
}

TEST(InfinibandPort, HiddenAttributesAreAbsent) {
  const test::FakeSysfs fake(kInfinibandNode);
  const InfinibandPort port = read_infiniband_ports(fake.root()).at(2);
  EXPECT_EQ(port.state, "");
  EXPECT_FALSE(port.active());
  EXPECT_FALSE(port.rate_gbps);
  EXPECT_FALSE(port.lid);
  EXPECT_TRUE(port.gids.empty());
}

struct RateText {
  std::string text;
  std::optional<double> gbps;
};

class Rate : public testing::TestWithParam<RateText> {};

TEST_P(Rate, IsTheLeadingNumberInGbps) {
  const test::FakeSysfs fake("class/infiniband/m/ports/1/rate = " + GetParam().text);
  EXPECT_EQ(read_infiniband_ports(fake.root()).at(0).rate_gbps, GetParam().gbps);
}

INSTANTIATE_TEST_SUITE_P(
    Table, Rate,
    testing::Values(RateText{"100 Gb/sec (4X EDR)", 100.0}, RateText{"2.5 Gb/sec (1X SDR)", 2.5},
                    RateText{"0 Gb/sec", std::nullopt}, RateText{"-5 Gb/sec", std::nullopt},
                    RateText{"nan Gb/sec", std::nullopt}, RateText{"inf Gb/sec", std::nullopt},
                    RateText{"1e300 Gb/sec", std::nullopt}, RateText{"100 Mb/sec", std::nullopt},
                    RateText{"fast", std::nullopt}));

TEST(InfinibandPort, OtherDirectoriesAreSkipped) {
  const test::FakeSysfs fake(
      "class/infiniband/m/ports/x/state = 4: ACTIVE\n"
      "class/infiniband/m/ports/12345678/state = 4: ACTIVE\n"
      "class/infiniband/n/\n");
  EXPECT_TRUE(read_infiniband_ports(fake.root()).empty());
}

}  // namespace
}  // namespace ddp::fabric
