// SPDX-License-Identifier: Apache-2.0
// The addresses by which SLURM reaches the nodes, as scontrol prints them and srun passes them on.
#include "spank_plugin/launch/node_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "fake_environment.h"

namespace ddp::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(NodeAddresses, AreReadFromScontrol) {
  EXPECT_EQ(
      make_node_addresses("NodeName=p1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=h1 OS=Linux "
                          "x NodeAddr=1\nNodeName=p2 NodeAddr=2001:db8::2 Port=1\n"),
      "p1=10.0.0.1,p2=2001:db8::2");
  EXPECT_EQ(make_node_addresses("NodeName=p1 NodeAddr=p1 NodeHostName=p1\nNodeName=p2 NodeAddr=q2"),
            "p2=q2")
      << "the first is the name again";
  for (const auto* const text :
       {"", "Node p1 not found", "NodeName=p1 NodeAddr=", "NodeAddr=10.0.0.1",
        "NodeName=p1 NodeAddr=a;b", "NodeName=p,1 NodeAddr=10.0.0.1"}) {
    EXPECT_EQ(make_node_addresses(text), "") << text;
  }
  EXPECT_EQ(make_node_addresses("NodeName=p1 NodeAddr=a\nNodeName=p2 NodeAddr=b\n", 8), "p1=a");
}

TEST(NodeAddresses, AreFoundByTheWholeName) {
  EXPECT_EQ(slurms_address_of("p1", "p10=10.0.0.10,p1=10.0.0.1"), "10.0.0.1");
  for (const auto* const text : {"", "p1", "p1=", "p1=a b", "p1=x=y", "=10.0.0.1"}) {
    EXPECT_EQ(slurms_address_of("p1", text), std::nullopt) << text;
  }
  EXPECT_EQ(slurms_address_of("", "=10.0.0.1"), std::nullopt);
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
        Node{NameLookup::timed_out, false, "10.0.0.1"},
        Node{NameLookup::only_loopback, true, "p1"}}) {  // the other nodes' answers count
    NodeFacts node{lookup, {}};
    node.slurms_address = "10.0.0.1";
    const Plan plan = slurm_plan(is_leaders ? on_p1() : two_by_two(), {}, node);
    EXPECT_EQ(value_in(plan, "MASTER_ADDR"), address);
    EXPECT_THAT(value_in(plan, "JAX_COORDINATOR_ADDRESS"), StartsWith(address));
    const bool is_slurms = plan.find("MASTER_ADDR")->rule.starts_with("SLURM's address of p1, ");
    EXPECT_EQ(is_slurms, std::string(address) != "p1");
    EXPECT_THAT(plan.node_notes, IsEmpty()) << "the name service is not needed";
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
