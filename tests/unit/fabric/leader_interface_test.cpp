// SPDX-License-Identifier: Apache-2.0
// The interface that reaches the leader, by each source of information in order of precedence.
#include "spank_plugin/fabric/leader_interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

using test::add_interface;
using test::add_route;
using test::two_nodes;

Node node_on_two_networks() {
  Node node;
  add_interface(node, "lo", "127.0.0.1/8").kind = InterfaceKind::loopback;
  add_interface(node, "eth0", "10.0.0.2/24");
  add_interface(node, "ib0", "10.1.0.2/24").kind = InterfaceKind::ipoib;
  add_route(node, "eth0", "10.0.0.0/24");
  add_route(node, "ib0", "10.1.0.0/24");
  add_route(node, "eth0", "0.0.0.0/0");
  return node;
}

std::string found_by(const Node& node, const Request& request) {
  std::vector<std::string> warnings;
  const auto found = find_leader_interface(node, request, warnings);
  EXPECT_THAT(warnings, testing::IsEmpty());
  return found ? found->name : "nothing";
}

TEST(LeaderInterface, HasTheRouteToTheLeader) {
  const Node node = node_on_two_networks();
  EXPECT_EQ(found_by(node, two_nodes("10.0.0.1")), "eth0");
  EXPECT_EQ(found_by(node, two_nodes("10.1.0.1")), "ib0");
  EXPECT_EQ(found_by(node, two_nodes("192.0.2.1")), "eth0");
  EXPECT_EQ(found_by(node, two_nodes("2001:db8::1")), "nothing");
}

TEST(LeaderInterface, OnTheLeaderHasItsAddress) {
  EXPECT_EQ(found_by(node_on_two_networks(), two_nodes("10.1.0.2")), "ib0");
}

TEST(LeaderInterface, NeedsALink) {
  Node node = node_on_two_networks();
  node.interfaces[2].running = false;
  EXPECT_EQ(found_by(node, two_nodes("10.1.0.2")), "nothing");
  EXPECT_EQ(found_by(node, two_nodes("10.1.0.1")), "nothing");
}

TEST(LeaderInterface, OwnNetworksTakePrecedenceOverTheDefaultRoute) {
  Request request = two_nodes("192.0.2.1");
  request.leader_addresses = {"192.0.2.1", "10.1.0.1"};
  EXPECT_EQ(found_by(node_on_two_networks(), request), "ib0");
}

TEST(LeaderInterface, KernelsAnswerTakesPrecedenceOverTheTable) {
  Request request = two_nodes("10.0.0.1");
  request.source_address = "10.1.0.2";  // by a policy routing rule
  EXPECT_EQ(found_by(node_on_two_networks(), request), "ib0");
  for (const auto* const useless : {"127.0.0.1", "10.9.9.9", "node1", ""}) {
    request.source_address = useless;
    EXPECT_EQ(found_by(node_on_two_networks(), request), "eth0") << useless;
  }
}

TEST(LeaderInterface, ReachesTheOtherNodesIfTheLeaderIsLoopback) {
  Request request = two_nodes("127.0.1.1");
  EXPECT_EQ(found_by(node_on_two_networks(), request), "nothing");
  request.peer_addresses = {"10.1.0.3"};
  EXPECT_EQ(found_by(node_on_two_networks(), request), "ib0");
}

TEST(LeaderInterface, IsTheOnlyOneOrHasTheDefaultRouteIfTheLeaderIsUnknown) {
  Request request;
  request.node_count = 2;
  EXPECT_EQ(found_by(node_on_two_networks(), request), "eth0");
  Node node;
  add_interface(node, "eth0", "10.0.0.2/24");
  add_interface(node, "docker0", "172.17.0.1/16");
  EXPECT_EQ(found_by(node, request), "eth0");
  add_interface(node, "eth1", "10.1.0.2/24");
  EXPECT_EQ(found_by(node, request), "nothing");
  add_route(node, "docker0", "0.0.0.0/0");
  EXPECT_EQ(found_by(node, request), "nothing");
}

TEST(LeaderInterface, SitesChoiceTakesPrecedenceIfPossible) {
  Node node = node_on_two_networks();
  node.site.path = "/etc/slurm-ddp/fabric.conf";
  node.site.interface = "ib0";
  EXPECT_EQ(found_by(node, two_nodes("10.0.0.1")), "ib0");
  node.interfaces[2].running = false;
  std::vector<std::string> warnings;
  EXPECT_EQ(find_leader_interface(node, two_nodes("10.0.0.1"), warnings)->name, "eth0");
  EXPECT_THAT(warnings, testing::ElementsAre(testing::HasSubstr("ib0, which is not running")));
  node.site.interface = "ib7";
  warnings.clear();
  EXPECT_EQ(find_leader_interface(node, two_nodes("10.0.0.1"), warnings)->name, "eth0");
  EXPECT_THAT(warnings, testing::ElementsAre(testing::HasSubstr("ib7, which this node does not")));
}

TEST(LeaderInterface, ContainerBridgeGivesAWarning) {
  Node node = node_on_two_networks();
  add_interface(node, "docker0", "172.17.0.1/16").kind = InterfaceKind::bridge;
  add_route(node, "docker0", "172.17.0.0/16");
  std::vector<std::string> warnings;
  EXPECT_EQ(find_leader_interface(node, two_nodes("172.17.0.9"), warnings)->name, "docker0");
  EXPECT_THAT(warnings, testing::ElementsAre(testing::HasSubstr("through docker0 (bridge)")));
}

}  // namespace
}  // namespace ddp::fabric
