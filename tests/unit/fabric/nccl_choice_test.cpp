// SPDX-License-Identifier: Apache-2.0
// NCCL's own rules, taken from its source, with and without the user's variable.
#include "spank_plugin/fabric/choice/nccl_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/text.h"
#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

using test::add_interface;
using test::add_port;

Node crowded_node() {
  Node node;
  add_interface(node, "lo", "127.0.0.1/8").kind = InterfaceKind::loopback;
  add_interface(node, "virbr0", "192.168.122.1/24").kind = InterfaceKind::bridge;
  add_interface(node, "eth0", "10.0.0.1/24");
  add_interface(node, "eth10", "10.1.0.1/24");
  add_interface(node, "docker0", "172.17.0.1/16").kind = InterfaceKind::bridge;
  add_interface(node, "silent");
  add_interface(node, "down0", "10.2.0.1/24").running = false;
  node.addresses.push_back({"eth0", parse_ip_address("2001:db8::1").value(), 64});
  return node;
}

struct Pick {
  std::string value, interfaces;
};

class NcclInterfaces : public testing::TestWithParam<Pick> {};

TEST_P(NcclInterfaces, AreInTheOrderOfTheirAddresses) {
  EXPECT_EQ(join(nccl_interfaces(crowded_node(), GetParam().value), " "), GetParam().interfaces);
}

INSTANTIATE_TEST_SUITE_P(
    Table, NcclInterfaces,
    testing::Values(Pick{"", "virbr0 eth0 eth10"},  // before 2.28, virbr is accepted
                    Pick{"e", "virbr0 eth0 eth10"}, Pick{"eth", "eth0 eth10"},
                    Pick{"eth1", "eth10"}, Pick{"=eth1", ""}, Pick{"=eth10,eth0", "eth0 eth10"},
                    Pick{"^docker,lo,virbr", "eth0 eth10"},
                    Pick{"^docker0", "lo virbr0 eth0 eth10"},
                    Pick{"^=eth0,lo,docker0", "virbr0 eth10"}, Pick{"ib", ""}, Pick{"down0", ""},
                    Pick{"eth0:5000", "eth0"}));

TEST(NcclInterfaces, PutIPoIBFirstAndDockerLast) {
  Node node = crowded_node();
  add_interface(node, "ibs5", "10.9.0.1/16");
  EXPECT_EQ(join(nccl_interfaces(node, ""), " "), "ibs5");
  Node only_docker;
  add_interface(only_docker, "lo", "127.0.0.1/8");
  EXPECT_EQ(join(nccl_interfaces(only_docker, ""), " "), "lo");
  add_interface(only_docker, "docker0", "172.17.0.1/16");
  EXPECT_EQ(join(nccl_interfaces(only_docker, ""), " "), "docker0");
  EXPECT_TRUE(nccl_interfaces(Node{}, "").empty());
}

Node node_with_ports() {
  Node node;
  for (const auto* const device : {"mlx5_0", "mlx5_1", "mlx5_10"}) {
    add_port(node, device, "InfiniBand", 200);
  }
  add_port(node, "mlx5_1", "Ethernet", 100).port = 2;
  add_port(node, "mlx5_2", "InfiniBand", 200).state = "INIT";
  add_port(node, "efa_0", "Unspecified", 100);
  return node;
}

class NcclPorts : public testing::TestWithParam<Pick> {};

TEST_P(NcclPorts, AreActiveAndSupportVerbs) {
  const Node node = node_with_ports();
  std::string names;
  for (const auto* port : nccl_ports(node, GetParam().value)) names += name_of(*port) + " ";
  EXPECT_EQ(names, GetParam().interfaces);
}

INSTANTIATE_TEST_SUITE_P(
    Table, NcclPorts,
    testing::Values(Pick{"", "mlx5_0:1 mlx5_1:1 mlx5_10:1 mlx5_1:2 "},
                    Pick{"mlx5_1", "mlx5_1:1 mlx5_10:1 mlx5_1:2 "},
                    Pick{"=mlx5_1", "mlx5_1:1 mlx5_1:2 "}, Pick{"=mlx5_1:2", "mlx5_1:2 "},
                    Pick{"^mlx5_1", "mlx5_0:1 "}, Pick{"^=mlx5_1:1,mlx5_0", "mlx5_10:1 mlx5_1:2 "},
                    Pick{"=mlx5_2", ""}, Pick{"efa", ""}, Pick{"=mlx5_0:x", ""},
                    Pick{"=mlx5_0:1 , mlx5_1", "mlx5_0:1 "}));

TEST(NcclNumber, IsReadAsByStrtoll) {
  EXPECT_EQ(nccl_number(" 0x10 "), 16);
  EXPECT_EQ(nccl_number("-1"), -1);
  EXPECT_EQ(nccl_number("1true"), 1);
  EXPECT_EQ(nccl_number("true"), std::nullopt);
  EXPECT_EQ(nccl_number(""), std::nullopt);
}

TEST(NcclPorts, ListEntriesExcludeThePrefix) {
  EXPECT_THAT(list_entries("^=a,b:1"), testing::ElementsAre("a", "b:1"));
  EXPECT_THAT(list_entries(""), testing::IsEmpty());
}

}  // namespace
}  // namespace ddp::fabric
