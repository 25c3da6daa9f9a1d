// SPDX-License-Identifier: Apache-2.0
// Tests the detection of the devices that carried the data, from counters of a fake /sys tree, and
// the findings about nodes, rails and switches.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/check/net/device_plan.h"
#include "ddp_runtime/check/net/evaluate/evaluate_leaves.h"
#include "ddp_runtime/check/net/evaluate/evaluate_transport.h"
#include "ddp_runtime/check/net/measure/traffic.h"
#include "ddp_runtime/check/net/rails.h"
#include "ddp_runtime/check/net/step/job_step.h"
#include "tests/unit/check/complaints.h"
#include "tests/unit/check/environment_of.h"
#include "tests/unit/fabric/fake_sysfs.h"

namespace ddp::check {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

TEST(Traffic, IsReadFromInterfacesAndPorts) {
  const test::FakeSysfs fake(R"(
    class/net/eth0/statistics/rx_bytes = 1000
    class/net/eth0/statistics/tx_bytes = 234
    class/net/odd/statistics/rx_bytes = 5
    class/infiniband/mlx5_0/ports/1/counters/port_rcv_data = 10
    class/infiniband/mlx5_0/ports/1/counters/port_xmit_data = 20
  )");
  EXPECT_EQ(read_traffic(fake.root()), (Traffic{{"eth0", 1234}, {"mlx5_0:1", 120}}));
  EXPECT_TRUE(read_traffic(fake.root() / "nowhere").empty());
}

TEST(Traffic, CarriersAreTheDevicesWithTraffic) {
  const Traffic before{{"eth0", 50}, {"eth1", 0}, {"eth2", 0}, {"gone", 7}, {"reset", 1000}};
  const Traffic after{{"eth0", 50 + 5 * kMebibyte},
                      {"eth1", 40 * kMebibyte},
                      {"eth2", 3 * kMebibyte},  // other traffic during the test
                      {"new", 90 * kMebibyte},  // no earlier reading
                      {"reset", 3}};
  EXPECT_EQ(carriers(before, after), (std::vector<std::string>{"eth1", "eth0"}));
  EXPECT_TRUE(carriers(before, {{"eth0", 60}}).empty());
}

TEST(Traffic, NamesTheModulesOfTheMpiLibrary) {
  EXPECT_EQ(modules_in({"/lib/libc.so.6", "/x/openmpi3/mca_btl_tcp.so", "/x/mca_btl_self.so",
                        "/x/openmpi3/mca_pml_ob1.so", "/x/mca_btl_tcp.so", "/x/mca_btl_odd"}),
            "pml ob1, btl self tcp");
  EXPECT_EQ(modules_in({}), "");
}

TEST(Transport, CommonTransportIsReportedOnce) {
  const Transports sockets{{"n1", {{"eth0"}, "pml ob1"}}, {"n2", {{"ens5"}, "pml ob1"}}};
  const auto findings = evaluate_transport("mpi", sockets);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings.front().severity, Severity::ok);
  EXPECT_EQ(std::get<std::string>(findings.front().value), "ens5, eth0");
  EXPECT_EQ(findings.front().evidence, "pml ob1");
  EXPECT_EQ(carriers_text(NodeTransport{}), "memory");
}

TEST(Transport, NodeThatFellBackToSocketsIsNamed) {
  const Transports mixed{
      {"n1", {{"mlx5_0:1"}, ""}}, {"n2", {{"mlx5_0:1", "eth0"}, ""}}, {"n3", {{"eth0"}, ""}}};
  EXPECT_EQ(complaints(evaluate_transport("mpi", mixed)), "mpi.transport n3=WARNING");
  EXPECT_EQ(complaints(evaluate_transport("tcp", mixed)), "");  // some nodes use IP over InfiniBand
  // With two nodes, either device may be intended.
  EXPECT_EQ(
      complaints(evaluate_transport("mpi", {{"n1", {{"mlx5_0:1"}, ""}}, {"n2", {{"eth0"}, ""}}})),
      "");
}

TEST(Transport, RailServedByAnotherInterfaceIsNamed) {
  const Transports strayed{{"n1", {{"eth1"}, ""}}, {"n2", {{"eth0"}, ""}}};
  EXPECT_EQ(complaints(evaluate_transport("tcp", strayed, "eth1")),
            "tcp.transport n2/eth1=WARNING");
}

TEST(Transport, NoAnswerIsUnknown) {
  EXPECT_EQ(complaints(evaluate_transport("tcp", {})), "tcp.transport=UNKNOWN");
}

// ---- rails and RDMA ports

Hello task_with(const std::string& node, const std::map<std::string, Rail>& rails) {
  Hello hello;
  hello.node = node;
  hello.rails = rails;
  return hello;
}

TEST(Rails, AutoSelectsPortsWithTheSameNameAndSpeedOnAllNodes) {
  const Rail fast{"10.0.0.1", 12.5e9, true};
  const Rail slow{"10.1.0.1", 1.25e8, true};
  const Rail virtual_one{"10.2.0.1", 12.5e9, false};
  const std::map<std::string, Rail> all{
      {"eth0", slow}, {"eth1", fast}, {"eth2", fast}, {"docker0", virtual_one}};
  std::map<int, Hello> present{{0, task_with("n1", all)}, {1, task_with("n2", all)}};
  EXPECT_EQ(alike_rails(present), (std::vector<std::string>{"eth1", "eth2"}));
  present[1].rails.erase("eth2");  // only one port remains, so there are no rails
  EXPECT_TRUE(alike_rails(present).empty());
  EXPECT_TRUE(alike_rails({}).empty());
}

// The nodes n1, n2, ..; the first `having` of them have eth1, and all have eth0.
std::map<int, Hello> nodes_with_rail(int nodes, int having) {
  const Rail any{"10.0.0.1", {}, true};
  std::map<int, Hello> present;
  for (int i = 0; i < nodes; ++i) {
    present[i] = task_with("n" + std::to_string(i + 1), {{"eth0", any}, {"lo", any}});
    if (i < having) present[i].rails["eth1"] = any;
  }
  return present;
}

TEST(Rails, NodesWithoutTheRailOfMostNodesAreNamed) {
  EXPECT_EQ(complaints(evaluate_rail("eth1", nodes_with_rail(3, 2))),
            "rail.address n3/eth1=CRITICAL");
  EXPECT_EQ(complaints(evaluate_rail("eth1", nodes_with_rail(1, 1))), "");
}

TEST(Rails, RailThatMostNodesLackIsAMistakeOfTheOption) {
  for (const int having : {0, 1, 2}) {
    EXPECT_EQ(complaints(evaluate_rail("eth1", nodes_with_rail(4, having))),
              "rail.address eth1=UNKNOWN")
        << having;
  }
  const auto typo = evaluate_rail("eth1", nodes_with_rail(4, 0)).front();
  EXPECT_EQ(typo.evidence, "no node has an interface eth1 with an address");
  EXPECT_EQ(typo.action, "name in --rails what most nodes have: eth0");
  EXPECT_EQ(evaluate_rail("eth1", nodes_with_rail(4, 2)).front().evidence,
            "only on n[1-2], and not on most nodes");
}

Hello task_with_rdma(const std::string& node, const std::vector<std::string>& ports,
                     bool measurable, const std::string& untested = "") {
  Hello hello;
  hello.node = node;
  for (const auto& name : ports) hello.rdma_ports.push_back({name, "", {}});
  hello.rdma_measurable = measurable;
  hello.rdma_untested = untested;
  return hello;
}

TEST(Rdma, IsMeasuredWherePresentAndReportedWhereMissing) {
  std::map<int, Hello> present{{0, task_with_rdma("n1", {}, false)},
                               {1, task_with_rdma("n2", {}, false)}};
  EXPECT_TRUE(plan_rdma(present, Severity::ok).findings.empty());
  EXPECT_EQ(plan_rdma(present, Severity::ok).nodes, 0U);
  present = {{0, task_with_rdma("n1", {"m0:1"}, true)},
             {1, task_with_rdma("n2", {"m0:1"}, true)},
             {2, task_with_rdma("n2", {"m0:1"}, true)},  // a second task on the node
             {3, task_with_rdma("n3", {}, false, "m0:1: no RoCE v2 address")},
             {4, task_with_rdma("n4", {"m0:1", "m1:1"}, false)}};
  const auto strict = plan_rdma(present, Severity::unknown);
  EXPECT_EQ(strict.nodes, 2U);
  EXPECT_EQ(complaints(strict.findings), "verbs.port n3=CRITICAL, verbs.tool n4/2 ports=UNKNOWN");
  EXPECT_EQ(strict.findings.front().evidence, "m0:1: no RoCE v2 address");
  EXPECT_TRUE(strict.notes.empty());
}

// The first `equipped` of `nodes` nodes have a port.
std::map<int, Hello> partly_equipped(int nodes, int equipped) {
  std::map<int, Hello> present;
  for (int i = 0; i < nodes; ++i) {
    const bool has = i < equipped;
    present[i] =
        task_with_rdma("n" + std::to_string(i + 1),
                       has ? std::vector<std::string>{"m0:1"} : std::vector<std::string>{}, has);
  }
  return present;
}

TEST(Rdma, WithoutAMajorityTheDifferenceIsToldAndNobodyIsBlamed) {
  for (const auto& [nodes, equipped] : {std::pair{2, 1}, {3, 1}, {4, 2}}) {
    EXPECT_EQ(complaints(plan_rdma(partly_equipped(nodes, equipped), Severity::ok).findings),
              "verbs.port=WARNING");
  }
  EXPECT_EQ(plan_rdma(partly_equipped(4, 2), Severity::ok).findings.front().evidence,
            "none on n[3-4]; m0:1 on n[1-2]; neither is the majority");
  EXPECT_EQ(plan_rdma(partly_equipped(3, 1), Severity::ok).findings.front().evidence,
            "none on n[2-3]; m0:1 on n1; only a minority has any");
}

TEST(Rdma, NodesOfAnotherKindNeedNoPort) {
  auto present = partly_equipped(10, 8);
  EXPECT_EQ(complaints(plan_rdma(present, Severity::ok).findings),
            "verbs.port n10=CRITICAL, verbs.port n9=CRITICAL");
  for (auto& [rank, hello] : present) hello.processors = hello.rdma_ports.empty() ? 64 : 192;
  EXPECT_EQ(plan_rdma(present, Severity::ok).findings.front().evidence,
            "it has 64 CPUs and the others 192, so it may be another kind of node");
  const auto many = plan_rdma(partly_equipped(10, 7), Severity::ok).findings;
  EXPECT_EQ(complaints(many),
            "verbs.port n10=WARNING, verbs.port n8=WARNING, verbs.port n9=WARNING");
  EXPECT_EQ(many.front().evidence, "3 nodes have as few, so they may be another kind of node");
}

TEST(Rdma, MissingToolIsOnlyNotedUnlessItIsRequired) {
  const std::map<int, Hello> present{{0, task_with_rdma("n1", {"m0:1"}, true)},
                                     {1, task_with_rdma("n2", {"m0:1"}, false)},
                                     {2, task_with_rdma("n3", {"m0:1"}, false)}};
  const auto plan = plan_rdma(present, Severity::ok);
  EXPECT_EQ(complaints(plan.findings), "");
  EXPECT_EQ(plan.findings.size(), 2U);
  EXPECT_EQ(plan.notes, (std::vector<std::string>{
                            "RDMA was not tested on n[2-3]: ib_write_bw is not installed; install "
                            "perftest, or skip RDMA with --no-verbs",
                            "RDMA was not tested on n1: no other node can be measured with it"}));
}

TEST(Rdma, PortsThatCannotBeTestedAreNotedInAFewLines) {
  std::map<int, Hello> present;
  for (int i = 0; i < 4; ++i) {
    present[i] = task_with_rdma("n" + std::to_string(i + 1), {}, false, "EFA only");
  }
  EXPECT_TRUE(plan_rdma(present, Severity::unknown).findings.empty());
  EXPECT_EQ(plan_rdma(present, Severity::unknown).notes,
            std::vector<std::string>{"RDMA was not tested on n[1-4]: EFA only"});
  present[1] = task_with_rdma("n2", {"m0:1"}, true, "m1:1: iWARP");
  EXPECT_EQ(plan_rdma(present, Severity::unknown).notes,
            (std::vector<std::string>{"RDMA was not tested on n[1,3-4]: EFA only",
                                      "RDMA was not tested on n2: m1:1: iWARP",
                                      "RDMA was not tested on n2: no other node can be measured "
                                      "with it"}));
  for (int i = 0; i < 9; ++i) {
    present[i] = task_with_rdma("n" + std::to_string(i + 1), {}, false, "R" + std::to_string(i));
  }
  const auto notes = plan_rdma(present, Severity::unknown).notes;
  ASSERT_EQ(notes.size(), 5U);
  EXPECT_EQ(notes.back(), "RDMA was not tested on 5 more nodes, for other reasons");
}

// ---- switches

Findings findings_about(const std::vector<Finding>& list) {
  Findings findings;
  findings.add(list);
  return findings;
}

Finding slow(const std::string& node, const std::string& peer = "") {
  return {.check = peer.empty() ? "tcp.send" : "tcp.link",
          .severity = peer.empty() ? Severity::critical : Severity::warning,
          .node = node,
          .peer = peer};
}

const Leaves kThreeSwitches{{"n1", "s1"}, {"n2", "s1"}, {"n3", "s1"}, {"n4", "s2"}, {"n5", "s2"},
                            {"n6", "s2"}, {"n7", "s3"}, {"n8", "s3"}, {"n9", "s3"}};

struct LeafCase {
  std::vector<Finding> findings;
  const char* said;
};

TEST(Leaves, NameTheSwitch) {
  const std::vector<LeafCase> cases{
      {{}, ""},
      {{slow("n4"), slow("n5")}, "net.leaf switch s2=CRITICAL"},
      {{slow("n4"), slow("n1")}, ""},  // no switch has a majority of bad nodes
      // The uplink of s2: every link across it is bad; every other switch has one affected node.
      {{slow("n1", "n4"), slow("n5", "n7"), slow("n1", "n6")}, "net.leaf switch s2=WARNING"},
      {{slow("n4", "n5"), slow("n5", "n6")},
       ""},  // both ends below one switch, so the uplink is not used
      {{slow("n1"), slow("n2"), slow("n4"), slow("n5")}, ""},  // almost all nodes
      {{{.check = "drift.kernel", .severity = Severity::warning, .node = "n4"},
        {.check = "drift.kernel", .severity = Severity::warning, .node = "n5"}},
       ""}};
  for (const auto& [findings, said] : cases) {
    EXPECT_EQ(complaints(evaluate_leaves(findings_about(findings), kThreeSwitches)), said);
  }
}

TEST(Leaves, LinksBetweenTwoSwitchesNameBoth) {
  const Leaves two{{"n1", "s1"}, {"n2", "s1"}, {"n3", "s2"}, {"n4", "s2"}};
  EXPECT_EQ(complaints(evaluate_leaves(findings_about({slow("n1", "n3"), slow("n2", "n4")}), two)),
            "net.leaf switch s1 or s2=WARNING");
  EXPECT_TRUE(evaluate_leaves(findings_about({slow("n1"), slow("n2")}), {}).empty());
  const Leaves one{{"n1", "s1"}, {"n2", "s1"}};  // no other switch for comparison
  EXPECT_TRUE(evaluate_leaves(findings_about({slow("n1"), slow("n2")}), one).empty());
}

TEST(Leaves, TwoBadNodesOfFiveDoNotBlameTheSwitch) {
  const Leaves uneven{{"n1", "s1"}, {"n2", "s1"}, {"n3", "s1"}, {"n4", "s1"},
                      {"n5", "s1"}, {"n6", "s2"}, {"n7", "s3"}};
  EXPECT_EQ(complaints(evaluate_leaves(findings_about({slow("n1"), slow("n2")}), uneven)), "");
  EXPECT_EQ(
      complaints(evaluate_leaves(findings_about({slow("n1"), slow("n2"), slow("n3")}), uneven)),
      "net.leaf switch s1=CRITICAL");
}

TEST(Leaves, AreReadFromSlurm) {
  const auto leaf = [](const char* address, const char* pattern) {
    return leaf_of(environment_of(
        {{"SLURM_TOPOLOGY_ADDR", address}, {"SLURM_TOPOLOGY_ADDR_PATTERN", pattern}}));
  };
  EXPECT_EQ(leaf("s0.s3.node7", "switch.switch.node"), "s3");
  EXPECT_EQ(leaf("node7", "switch.switch.node"), "");
  EXPECT_EQ(leaf("node7", "node"), "");
  EXPECT_EQ(leaf_of(environment_of({})), "");
  EXPECT_EQ(leaf_of(environment_of({{"SLURM_TOPOLOGY_ADDR", "s0.s3.node7"}})), "");
}

}  // namespace
}  // namespace ddp::check
