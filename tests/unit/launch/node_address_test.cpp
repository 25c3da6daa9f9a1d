// SPDX-License-Identifier: Apache-2.0
// The addresses by which SLURM reaches the nodes, as scontrol prints them and srun passes them on.
#include "spank_plugin/launch/step/node_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_environment.h"

namespace ddp::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
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
  EXPECT_TRUE(is_slurms_address("10.0.0.1", "p10=10.0.0.10,p1=10.0.0.1"));
  EXPECT_FALSE(is_slurms_address("10.0.0.1", "p10=10.0.0.10,10.0.0.1"));
}

NodeFacts by_slurms_address() {
  NodeFacts node{NameLookup::unknown_name, {}};
  node.slurms_address = "10.0.0.1";
  node.why_slurms_address = "p1 is unknown to the name service";
  return node;
}

TEST(NodeAddressOfLeader, IsMasterAddrAndTheNodeSaysWhy) {
  const Plan plan = slurm_plan(two_by_two(), {}, by_slurms_address());
  EXPECT_EQ(value_in(plan, "MASTER_ADDR"), "10.0.0.1");
  EXPECT_THAT(value_in(plan, "JAX_COORDINATOR_ADDRESS"), StartsWith("10.0.0.1:"));
  EXPECT_THAT(plan.find("MASTER_ADDR")->rule, StartsWith("SLURM's address of p1, "));
  EXPECT_THAT(plan.own_notes(),
              ElementsAre(StartsWith("p2: p1 is unknown to the name service, so")))
      << "rank 0 may be on a node that knows the name";
}

TEST(NodeAddressOfLeader, MeansThatNoNameIsPassedToOtherNodes) {
  const std::string addresses = "p1=10.0.0.1,p2=fd00::2";
  const Variables step = {{"SLURM_DDP_NODE_ADDR", addresses}, {"http_proxy", "x"}};
  const Plan workers =
      slurm_plan(merged(two_by_two(), step), asked("tf_config"), by_slurms_address());
  EXPECT_THAT(value_in(workers, "TF_CONFIG"),
              AllOf(HasSubstr("\"10.0.0.1:"), HasSubstr("\"[fd00::2]:"), Not(HasSubstr("\"p"))));
  EXPECT_EQ(value_in(workers, "no_grpc_proxy"), "10.0.0.1,fd00::2");
  const auto local_address = [&step](const NodeFacts& node) {
    return value_in(slurm_plan(merged(one_per_node(), step), asked("torchrun,rdzv=c10d"), node),
                    "PET_LOCAL_ADDR");
  };
  EXPECT_EQ(local_address(by_slurms_address()), "fd00::2");
  EXPECT_EQ(local_address({}), "p2") << "names lead to the nodes here";
}

TEST(NodeAddressOfLeader, DoesNotReplaceTheUsersChoice) {
  EXPECT_EQ(value_in(slurm_plan(two_by_two(), asked("master_addr=mine"), by_slurms_address()),
                     "MASTER_ADDR"),
            "mine");
}

}  // namespace
}  // namespace ddp::launch
