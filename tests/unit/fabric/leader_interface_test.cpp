// SPDX-License-Identifier: Apache-2.0
// The interface that reaches the leader, by each source of information in order of precedence.
#include "spank_plugin/fabric/plan/leader_interface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

using test::add_interface;
using test::add_route;
using test::two_nodes;
using testing::ElementsAre;
using testing::HasSubstr;

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

struct Answer {
  std::string interface;
  std::vector<std::string> warnings;
};

Answer ask(const Node& node, const Request& request) {
  Plan plan;
  const UserVariables user;
  PlanBuilder builder(plan, node, user);
  const auto found = find_leader_interface(node, request, builder);
  return {found ? found->name : "nothing", plan.warnings};
}

std::string found_by(const Node& node, const Request& request) {
  const Answer answer = ask(node, request);
  EXPECT_EQ(answer.warnings.empty(), answer.interface != "nothing");
  return answer.interface;
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
  EXPECT_EQ(ask(node, two_nodes("10.0.0.1")).interface, "eth0");
  EXPECT_THAT(ask(node, two_nodes("10.0.0.1")).warnings,
              ElementsAre(HasSubstr("ib0, which is not running")));
  node.site.interface = "ib7";
  EXPECT_EQ(ask(node, two_nodes("10.0.0.1")).interface, "eth0");
  EXPECT_THAT(ask(node, two_nodes("10.0.0.1")).warnings,
              ElementsAre(HasSubstr("ib7, which this node does not")));
  add_interface(node, "spare", "fe80::7/64");
  node.site.interface = "spare";
  EXPECT_EQ(ask(node, two_nodes("10.0.0.1")).interface, "eth0");
  EXPECT_THAT(ask(node, two_nodes("10.0.0.1")).warnings,
              ElementsAre(HasSubstr("spare, which has no address here")));
}

TEST(LeaderInterface, ContainerBridgeGivesAWarning) {
  Node node = node_on_two_networks();
  add_interface(node, "docker0", "172.17.0.1/16").kind = InterfaceKind::bridge;
  add_route(node, "docker0", "172.17.0.0/16");
  EXPECT_EQ(ask(node, two_nodes("172.17.0.9")).interface, "docker0");
  EXPECT_THAT(ask(node, two_nodes("172.17.0.9")).warnings,
              ElementsAre(HasSubstr("through docker0 (bridge)")));
}

// --- addresses that peers can reach

Node routed_host(const std::string& holder, InterfaceKind kind) {
  Node node;
  add_interface(node, "lo", "127.0.0.1/8").kind = InterfaceKind::loopback;
  if (holder != "lo") add_interface(node, holder).kind = kind;
  node.addresses.push_back({holder, parse_ip_address("10.1.2.3").value(), 32});
  add_interface(node, "lan0", "fe80::10/64");
  add_route(node, "lan0", "0.0.0.0/0");
  return node;
}

TEST(LeaderInterface, OfARoutedHostIsTheOneWithItsAddress) {
  for (const auto* const holder : {"lo", "dummy0"}) {
    const Node node = routed_host(holder, InterfaceKind::other);
    Request request = two_nodes("10.1.2.4");
    EXPECT_EQ(found_by(node, request), holder) << "by the table";
    request.source_address = "10.1.2.3";
    EXPECT_EQ(found_by(node, request), holder) << "by the kernel";
    EXPECT_EQ(found_by(node, two_nodes("10.1.2.3")), holder) << "on the leader";
  }
  EXPECT_EQ(found_by(routed_host("tun7", InterfaceKind::tun), two_nodes("10.1.2.4")), "nothing")
      << "an address of a VPN is not the host's";
  Node network = routed_host("dummy0", InterfaceKind::other);
  network.addresses[1].prefix_bits = 24;
  EXPECT_EQ(found_by(network, two_nodes("10.1.2.4")), "nothing") << "nor is one of a network";
}

TEST(LeaderInterface, HasAnAddressOfTheLeadersFamily) {
  Node node;
  add_interface(node, "eth0", "2001:db8::2/64");
  add_route(node, "eth0", "0.0.0.0/0");
  EXPECT_EQ(found_by(node, two_nodes("192.0.2.1")), "nothing");
  node.addresses.push_back({"eth0", parse_ip_address("169.254.3.1").value(), 16});
  EXPECT_EQ(found_by(node, two_nodes("192.0.2.1")), "nothing") << "link-local";
  Request unknown = two_nodes("");
  unknown.leader_addresses.clear();
  add_interface(node, "eth1", "10.1.0.2/24");
  EXPECT_EQ(found_by(node, unknown), "nothing") << "neither the only one nor usable by default";
}

TEST(LeaderInterface, AbsenceIsExplained) {
  Node node = node_on_two_networks();
  node.routes.pop_back();  // the default route
  EXPECT_THAT(ask(node, two_nodes("10.255.0.1")).warnings,
              ElementsAre(testing::AllOf(HasSubstr("no route to MASTER_ADDR (10.255.0.1 on this"),
                                         HasSubstr("--ddp=master_addr=ADDRESS"))));
  node.site.interface = "ib0";
  EXPECT_THAT(ask(node, two_nodes("10.255.0.1")).warnings, ElementsAre(HasSubstr("no route to")))
      << "although the site chooses an interface";
  node.site.interface.reset();
  node.interfaces[1].running = false;
  EXPECT_THAT(ask(node, two_nodes("10.0.0.1")).warnings,
              ElementsAre(HasSubstr("leads through eth0, which is not running")));
  EXPECT_THAT(ask(Node{}, two_nodes("10.0.0.1")).warnings, testing::IsEmpty())
      << "the launch plan has a note";
}

}  // namespace
}  // namespace ddp::fabric
