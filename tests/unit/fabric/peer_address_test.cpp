// SPDX-License-Identifier: Apache-2.0
// An interface counts only with an address that other nodes reach: hosts whose address is on lo or
// a dummy interface behind unnumbered links, and interfaces with link-local addresses only, such as
// that of a board's management controller on USB.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "spank_plugin/fabric/plan/plan.h"
#include "tests/unit/fabric/machine.h"
#include "tests/unit/fabric/node_values.h"

namespace ddp::fabric {
namespace {

using test::Machine;
using test::machine_text;
using test::two_nodes;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

using Variables = std::map<std::string, std::string>;

Plan plan_of(const std::string& machine, const std::string& leader, const Variables& user = {}) {
  return make_plan(Machine(machine_text(machine)).read(), two_nodes(leader), test::variables(user));
}

Variables set_by(const Plan& plan) {
  Variables set;
  for (const auto& setting : plan.settings) {
    if (!setting.kept) set[setting.name] = setting.value;
  }
  return set;
}

// --- routed hosts

TEST(RoutedHost, WithItsAddressOnLoKeepsTheLibrariesOwnChoice) {
  const Plan plan = plan_of("routed_host", "10.1.2.4");
  EXPECT_THAT(set_by(plan), IsEmpty()) << "lan0 has no address, and lo is 127.0.0.1 to Gloo";
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_THAT(plan.notes, Contains(HasSubstr("10.1.2.3, is on lo, and Gloo")));
  EXPECT_EQ(plan.local_address, "10.1.2.3");
  EXPECT_EQ(plan.summary, "fabric: no RDMA, leader by routes from an address on lo");
}

TEST(RoutedHost, WithItsAddressOnLoWarnsOfNcclIfThereAreGpus) {
  Node node = Machine(machine_text("routed_host")).read();
  test::add_gpu(node, {"pci0000:00"});
  EXPECT_THAT(make_plan(node, two_nodes("10.1.2.4"), {}).warnings,
              ElementsAre(HasSubstr("where NCCL finds only 127.0.0.1")));
  test::add_interface(node, "virbr0", "192.168.122.1/24").kind = InterfaceKind::bridge;
  const Plan with_bridge = make_plan(node, two_nodes("10.1.2.4"), {});
  EXPECT_THAT(with_bridge.warnings, ElementsAre(HasSubstr("where NCCL finds only 127.0.0.1")));
  EXPECT_EQ(set_by(with_bridge),
            (Variables{{"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,virbr0"}}));
  node.interfaces.pop_back();
  node.addresses.pop_back();
  test::add_interface(node, "eth0", "10.9.0.3/24");
  const Plan managed = make_plan(node, two_nodes("10.1.2.4"), {});
  EXPECT_THAT(managed.warnings, IsEmpty());
  EXPECT_EQ(set_by(managed), (Variables{{"NCCL_SOCKET_IFNAME", "=eth0"}}));
}

TEST(RoutedHost, WithItsAddressOnADummyInterfaceUsesThat) {
  const Plan plan = plan_of("routed_host_dummy", "10.1.2.4");
  EXPECT_EQ(set_by(plan), (Variables{{"GLOO_SOCKET_IFNAME", "dummy0"},
                                     {"NCCL_SOCKET_IFNAME", "=dummy0"},
                                     {"TP_SOCKET_IFNAME", "dummy0"}}));
  EXPECT_THAT(plan.warnings, IsEmpty()) << "no packet passes through dummy0";
}

TEST(RoutedHost, NameLoLeadsLibrariesToItsFirstAddress) {
  for (const auto* const name : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}) {
    const Variables user = {{name, "lo"}};
    EXPECT_THAT(plan_of("routed_host", "10.1.2.4", user).warnings,
                ElementsAre(HasSubstr("the first address of lo")))
        << name;
    Request one_node;
    EXPECT_THAT(
        make_plan(Machine(machine_text("routed_host")).read(), one_node, test::variables(user))
            .warnings,
        IsEmpty())
        << name << " on one node";
  }
  Node node = Machine(machine_text("routed_host") + "address lo ::1/128\n").read();
  node.addresses.push_back({"lo", parse_ip_address("2001:db8::3").value(), 128});
  const Variables v6 = {{"NCCL_SOCKET_IFNAME", "=lo"}, {"NCCL_SOCKET_FAMILY", "AF_INET6"}};
  EXPECT_THAT(make_plan(node, two_nodes("2001:db8::4"), test::variables(v6)).warnings,
              Not(Contains(HasSubstr("first address of lo"))));
}

// --- link-local addresses

struct LinkLocal {
  std::string machine;
  Variables settings;
};

TEST(LinkLocalInterface, CarriesNoData) {
  const std::vector<LinkLocal> cases{
      {"usb_link_local",
       {{"GLOO_SOCKET_IFNAME", "eth0"},
        {"NCCL_SOCKET_IFNAME", "=eth0"},
        {"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,usb0"},
        {"TP_SOCKET_IFNAME", "eth0"},
        {"UCX_NET_DEVICES", "eth0"}}},
      {"usb_link_local_first",
       {{"GLOO_SOCKET_IFNAME", "eth0"},
        {"NCCL_SOCKET_IFNAME", "=eth0"},
        {"OMPI_MCA_btl_tcp_if_exclude", "127.0.0.1/8,sppp,usb0"},
        {"TP_SOCKET_IFNAME", "eth0"},
        {"UCX_NET_DEVICES", "eth0"}}},
      // Open MPI and UCX do not use link-local IPv6 addresses, but NCCL does.
      {"only_fe80",
       {{"GLOO_SOCKET_IFNAME", "eth0"},
        {"NCCL_SOCKET_IFNAME", "=eth0"},
        {"TP_SOCKET_IFNAME", "eth0"}}},
      {"only_fe80_first",
       {{"GLOO_SOCKET_IFNAME", "ens2"},
        {"NCCL_SOCKET_IFNAME", "=ens2"},
        {"TP_SOCKET_IFNAME", "ens2"}}}};
  for (const auto& [machine, settings] : cases) {
    const Plan plan = plan_of(machine, "10.0.0.9");
    EXPECT_EQ(set_by(plan), settings) << machine;
    EXPECT_THAT(plan.warnings, IsEmpty()) << machine;
  }
}

TEST(LinkLocalInterface, IsExcludedBesideOthersThatShareTheData) {
  Node node = Machine(machine_text("usb_link_local")).read();
  test::add_interface(node, "eth1", "10.0.1.5/24").speed_mbps = 1000;
  EXPECT_EQ(test::value_set(make_plan(node, two_nodes("10.0.0.9"), {}), "NCCL_SOCKET_IFNAME"),
            "^docker,lo,virbr,veth,br-,usb0");
}

TEST(LinkLocalInterface, DoesNotExcludeAnotherWhoseNameBeginsWithItsName) {
  Node node = Machine(machine_text("only_fe80")).read();
  test::add_interface(node, "eth10", "10.0.1.5/24").speed_mbps = 25'000;
  test::add_route(node, "eth10", "10.0.1.0/24");
  EXPECT_EQ(test::value_set(make_plan(node, two_nodes("10.0.0.9"), {}), "NCCL_SOCKET_IFNAME"),
            "=eth0,eth10");
  EXPECT_EQ(test::value_set(make_plan(node, two_nodes("10.0.1.9"), {}), "NCCL_SOCKET_IFNAME"),
            "=eth0,eth10")
      << "eth10 leads to the leader";
}

// --- the user's interfaces

TEST(UsersInterface, MustBeUsableOnThisNode) {
  Node node = Machine(machine_text("only_fe80")).read();
  test::add_interface(node, "ib0");
  test::add_interface(node, "ib1", "10.2.0.5/24").running = false;
  for (const auto* const name : {"GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"}) {
    const auto warnings_with = [&](const std::string& value) {
      const Plan plan = make_plan(node, two_nodes("10.0.0.9"), test::variables({{name, value}}));
      EXPECT_EQ(plan.warnings, plan.node_warnings) << "each node reports its own";
      return plan.warnings;
    };
    EXPECT_THAT(warnings_with("ib0"), ElementsAre(HasSubstr("ib0 has no address here")));
    EXPECT_THAT(warnings_with("eth1"), ElementsAre(HasSubstr("eth1 has no address here")));
    EXPECT_THAT(warnings_with("ib1"), ElementsAre(HasSubstr("ib1 is not running here")));
    EXPECT_THAT(warnings_with("eth0,ib7"), ElementsAre(HasSubstr("does not have an interface")));
    EXPECT_THAT(warnings_with("eth0"), IsEmpty());
  }
  EXPECT_THAT(
      make_plan(node, two_nodes("10.0.0.9"), test::variables({{"NCCL_SOCKET_IFNAME", "=eth1"}}))
          .node_warnings,
      ElementsAre(HasSubstr("NCCL will start with eth1, which has no address here")));
}

TEST(NodeWarnings, AreOfFailuresThatOtherNodesNeedNotHave) {
  const Plan plan =
      plan_of("cloud_vm", "10.0.0.4", {{"NCCL_SOCKET_IFNAME", "ib0"}, {"NCCL_P2P_DISABLE", "1"}});
  EXPECT_THAT(plan.node_warnings, ElementsAre(HasSubstr("no running interface")));
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("NCCL_P2P_DISABLE")));
}

}  // namespace
}  // namespace ddp::fabric
