// SPDX-License-Identifier: Apache-2.0
// Assignment of ports to GPUs. The DGX tables are built from public descriptions.
#include "spank_plugin/fabric/choice/affinity.h"

#include <gtest/gtest.h>

#include <array>

#include "spank_plugin/fabric/choice/compute_ports.h"
#include "tests/unit/fabric/machine.h"
#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

std::string table_of(const Node& node) {
  std::string table;
  for (const auto& nearest : assign_ports(node, choose_compute_ports(node).ports)) {
    table += node.ports[nearest.port].device + "/" + std::to_string(nearest.equally_near) + " ";
  }
  return table;
}

TEST(Affinity, DgxA100SharesTheTwoPortsOfEachSwitch) {
  const test::Machine machine(test::machine_text("dgx_a100"));
  EXPECT_EQ(table_of(machine.read()),
            "mlx5_0/2 mlx5_1/2 mlx5_2/2 mlx5_3/2 mlx5_6/2 mlx5_7/2 mlx5_8/2 mlx5_9/2 ");
}

TEST(Affinity, DgxH100IsOneToOne) {
  const test::Machine machine(test::machine_text("dgx_h100"));
  EXPECT_EQ(table_of(machine.read()),
            "mlx5_0/1 mlx5_3/1 mlx5_4/1 mlx5_5/1 mlx5_6/1 mlx5_9/1 mlx5_10/1 mlx5_11/1 ");
}

TEST(Affinity, NumaNodeDecidesIfTheTreeDoesNot) {
  Node node;
  test::add_port(node, "mlx5_0", "InfiniBand", 200).numa_node = 0;
  test::add_port(node, "mlx5_1", "InfiniBand", 200).numa_node = 1;
  test::add_gpu(node, {}, 1);
  test::add_gpu(node, {}, 1);
  test::add_gpu(node, {}, 0);
  EXPECT_EQ(table_of(node), "mlx5_1/1 mlx5_1/1 mlx5_0/1 ");
}

// On GB200, no port shares a root port with a GPU, and successive ports alternate between the CPUs.
TEST(Affinity, Gb200FollowsTheNumaTable) {
  const test::Machine machine(test::machine_text("gb200"));
  EXPECT_EQ(table_of(machine.read()), "rocep0/2 rocep2/2 rocep1/2 rocep3/2 ");
}

// Two sockets with two NUMA nodes each: the other node of the same socket is nearer.
TEST(Affinity, NearerNumaNodeDecidesIfNoneIsTheSame) {
  Node node;
  test::add_port(node, "mlx5_0", "InfiniBand", 200).numa_node = 0;
  test::add_port(node, "mlx5_1", "InfiniBand", 200).numa_node = 2;
  test::add_port(node, "mlx5_2", "InfiniBand", 200).numa_node.reset();
  test::add_gpu(node, {}, 1);
  test::add_gpu(node, {}, 3);
  EXPECT_EQ(table_of(node), "mlx5_0/2 mlx5_1/2 ") << "without a table, all distances are equal";
  for (const auto& [from, to, distance] :
       {std::array{1, 0, 12}, {1, 2, 32}, {3, 0, 32}, {3, 2, 12}}) {
    node.numa_distances.set(from, to, distance);
  }
  EXPECT_EQ(table_of(node), "mlx5_0/1 mlx5_1/1 ");
}

TEST(Affinity, EquallyNearPortsAreSharedEvenly) {
  Node node;
  for (const auto* const device : {"mlx5_0", "mlx5_1", "mlx5_2"}) {
    test::add_port(node, device, "InfiniBand", 200);
  }
  for (int i = 0; i < 6; ++i) test::add_gpu(node, {});
  EXPECT_EQ(table_of(node), "mlx5_0/3 mlx5_1/3 mlx5_2/3 mlx5_0/3 mlx5_1/3 mlx5_2/3 ");
}

TEST(Affinity, FindsGpusByName) {
  const test::Machine machine(test::machine_text("dgx_h100"));
  const Node node = machine.read();
  EXPECT_EQ(find_gpu(node, "7"), 7U);
  EXPECT_EQ(find_gpu(node, "GPU-h100-0000-0003"), 3U);
  EXPECT_EQ(find_gpu(node, "0000:43:00.0"), 1U);
  for (const auto* const unknown :
       {"8", "", "-1", "GPU-", "MIG-1-2-3-4", "GPU-h100-0000-000", "GPU-h100-0000-0009"}) {
    EXPECT_FALSE(find_gpu(node, unknown)) << unknown;
  }
  EXPECT_TRUE(assign_ports(node, {}).empty());
}

}  // namespace
}  // namespace ddp::fabric
