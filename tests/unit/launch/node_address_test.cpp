// SPDX-License-Identifier: Apache-2.0
// The address by which SLURM reaches a node, as scontrol prints it and as srun passes it on.
#include "spank_plugin/launch/node_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "fake_environment.h"

namespace ddp::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(NodeAddressText, IsReadFromScontrol) {
  const std::string output =
      "NodeName=p1 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 NodeAddr=10.0.0.1 NodeHostName=h1 "
      "Version=22.05.8 OS=Linux NodeAddr=1 x\nNodeName=p2 NodeAddr=10.0.0.2\n";
  EXPECT_EQ(node_address_in(output, "p1"), (NodeAddress{"p1", "10.0.0.1"}));
  EXPECT_EQ(node_address_in(output, "p2"), std::nullopt) << "of another node";
  EXPECT_EQ(node_address_in("NodeName=p1 NodeAddr=p1 NodeHostName=p1", "p1"), std::nullopt)
      << "the name again";
  EXPECT_EQ(node_address_in("NodeName=p1 NodeAddr= x", "p1"), std::nullopt);
  EXPECT_EQ(node_address_in("NodeName=p1 NodeAddr=a;b", "p1"), std::nullopt);
  EXPECT_EQ(node_address_in("Node p1 not found", "p1"), std::nullopt);
}

TEST(NodeAddressText, PassesToTheNodes) {
  const NodeAddress v6{"p1", "2001:db8::1"};
  EXPECT_EQ(parse_node_address(format_node_address(v6)), v6);
  for (const auto* const text : {"", "p1", "=10.0.0.1", "p1=", "p1=a b", "p1=x=y"}) {
    EXPECT_EQ(parse_node_address(text), std::nullopt) << text;
  }
}

struct Node {
  NameLookup lookup;
  bool is_leaders;
  const char* address;
};

Variables on_p1() {
  return merged(two_by_two(), {{"SLURM_PROCID", "0"},
                               {"SLURM_NODEID", "0"},
                               {"SLURM_GTIDS", "0,1"},
                               {"SLURMD_NODENAME", "p1"}});
}

TEST(NodeAddressOfLeader, IsMasterAddrWhereTheNameLeadsNowhere) {
  for (const auto& [lookup, is_leaders, address] :
       {Node{NameLookup::unknown_name, false, "10.0.0.1"},
        Node{NameLookup::unknown_name, true, "10.0.0.1"},
        Node{NameLookup::only_loopback, false, "10.0.0.1"},
        Node{NameLookup::only_loopback, true, "p1"}}) {  // the other nodes' answers count
    NodeFacts node{lookup, {}};
    node.slurms_address = "10.0.0.1";
    const Plan plan = slurm_plan(is_leaders ? on_p1() : two_by_two(), {}, node);
    EXPECT_EQ(value_in(plan, "MASTER_ADDR"), address);
    EXPECT_THAT(value_in(plan, "JAX_COORDINATOR_ADDRESS"), StartsWith(address));
    const bool is_slurms = plan.find("MASTER_ADDR")->rule.starts_with("SLURM's address of p1, ");
    EXPECT_EQ(is_slurms, std::string(address) != "p1");
    EXPECT_THAT(plan.notes, ElementsAre(HasSubstr(is_slurms ? "by which SLURM reaches it"
                                                            : "on its own host")));
  }
}

TEST(NodeAddressOfLeader, DoesNotReplaceAnotherChoice) {
  NodeFacts node{NameLookup::unknown_name, {}};
  node.slurms_address = "10.0.0.1";
  Settings settings;
  apply(settings, parse_spec("master_addr=mine", "--ddp"), Origin::command_line);
  EXPECT_EQ(value_in(slurm_plan(two_by_two(), settings, node), "MASTER_ADDR"), "mine");
  Settings suffixed;
  apply(suffixed, parse_spec("addr_suffix=i", "--ddp"), Origin::command_line);
  EXPECT_THROW(slurm_plan(two_by_two(), suffixed, node), UsageError) << "of another network";
}

}  // namespace
}  // namespace ddp::launch
