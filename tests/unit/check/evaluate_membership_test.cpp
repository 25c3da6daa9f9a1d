// SPDX-License-Identifier: Apache-2.0
// Tests which nodes and tasks are named when they do not report, or report differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <utility>

#include "ddp_runtime/check/net/evaluate/evaluate_membership.h"
#include "ddp_runtime/check/net/evaluate/evaluate_names.h"
#include "tests/unit/check/evaluate_fixtures.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

JobStep two_nodes() {
  JobStep step;
  step.size = 3;
  step.nodes = {{"n1", 2}, {"n2", 1}};
  step.leader_host = "n1";
  return step;
}

constexpr std::chrono::milliseconds kTimeout{30'000};

TEST(EvaluateRollCall, CompleteRollCallIsOk) {
  EXPECT_EQ(complaints(evaluate_roll_call(two_nodes(), reports({"n1", "n1", "n2"}), kTimeout, {})),
            "");
}

TEST(EvaluateRollCall, MissingNodesAndTasksAreNamed) {
  EXPECT_EQ(complaints(evaluate_roll_call(two_nodes(), reports({"n1", "n1", ""}), kTimeout, {})),
            "net.missing n2=CRITICAL");
  const auto findings = evaluate_roll_call(two_nodes(), reports({"n1", "", "n2"}), kTimeout, {});
  EXPECT_EQ(complaints(findings), "net.missing n1=CRITICAL");
  EXPECT_EQ(findings.front().evidence, "1 of 2 tasks reported");
}

TEST(EvaluateRollCall, RanksAreNamedIfTheNodesAreUnknown) {
  JobStep step = two_nodes();
  step.nodes.clear();
  EXPECT_EQ(complaints(evaluate_roll_call(step, reports({"n1", "", ""}), kTimeout, {})),
            "net.missing /rank 1,2=CRITICAL");
}

TEST(EvaluateRollCall, RejectedTasksAreReported) {
  EXPECT_EQ(complaints(evaluate_roll_call(two_nodes(), reports({"n1", "n1", "n2"}), kTimeout,
                                          {"n9 belongs to another job step"})),
            "net.refused =WARNING");
}

// A job of one node has no network to check, but a check of one node in a larger job was started
// incorrectly.
TEST(EvaluateRollCall, OneNodeIsFineOnlyIfItIsTheWholeJob) {
  JobStep step;
  step.nodes = {{"n1", 4}};
  for (const auto& [job_nodes, severity] :
       {std::pair{0, Severity::unknown}, std::pair{1, Severity::ok},
        std::pair{8, Severity::unknown}}) {
    step.job_nodes = job_nodes;
    EXPECT_EQ(evaluate_no_pair(step).severity, severity) << job_nodes;
  }
  JobStep with_a_missing_node = two_nodes();
  with_a_missing_node.job_nodes = 1;
  EXPECT_EQ(evaluate_no_pair(with_a_missing_node).severity, Severity::unknown);
}

JobStep five_nodes() {
  JobStep step;
  step.size = 5;
  step.nodes = {{"n1", 1}, {"n2", 1}, {"n3", 1}, {"n4", 1}, {"n5", 1}};
  step.leader_host = "n1";
  return step;
}

// Rank 0 with a dead link hears no other node. It must not exclude and drain all good nodes.
TEST(EvaluateRollCall, NamesNoNodeIfMostAreMissing) {
  const auto alone =
      evaluate_roll_call(five_nodes(), reports({"n1", "", "", "", ""}), kTimeout, {});
  EXPECT_EQ(complaints(alone), "net.missing =CRITICAL");
  EXPECT_THAT(alone.front().evidence, HasSubstr("4 of 5 nodes: n2, n3, n4, n5; "));
  EXPECT_EQ(
      complaints(evaluate_roll_call(five_nodes(), reports({"n1", "", "", "", "n5"}), kTimeout, {})),
      "net.missing =CRITICAL");
  EXPECT_EQ(complaints(evaluate_roll_call(five_nodes(), reports({"n1", "", "", "n4", "n5"}),
                                          kTimeout, {})),
            "net.missing n2=CRITICAL, net.missing n3=CRITICAL");
}

TEST(EvaluateRollCall, FewOfManyMissingNodesAreListed) {
  JobStep step;
  step.size = 1000;
  for (int i = 1; i <= 1000; ++i) step.nodes.push_back({"n" + std::to_string(i), 1});
  const auto findings = evaluate_roll_call(step, reports({"n1"}), kTimeout, {});
  EXPECT_EQ(complaints(findings), "net.missing =CRITICAL");
  EXPECT_THAT(findings.front().evidence, HasSubstr("999 of 1000 nodes: n2, n3, n4, n5, n6, n7, n8, "
                                                   "n9 and 991 more;"));
}

TEST(EvaluateLost, NamesNoNodeIfMostAreSilent) {
  const std::vector<LostTask> lost{{1, "n2", "TCP round 1 of 3", "it stopped answering"},
                                   {2, "n3", "TCP round 1 of 3", "it stopped answering"}};
  const auto all = node_table(five_nodes(), reports({"n1", "n2", "n3", "n4", "n5"}));
  EXPECT_EQ(complaints(evaluate_lost(five_nodes(), all, lost)),
            "net.answer n2=CRITICAL, net.answer n3=CRITICAL");
  const auto one_missing = node_table(five_nodes(), reports({"n1", "n2", "n3", "n4", ""}));
  const auto findings = evaluate_lost(five_nodes(), one_missing, lost);
  EXPECT_EQ(complaints(findings), "net.answer =CRITICAL");
  EXPECT_THAT(findings.front().evidence, HasSubstr("3 of 5 nodes: n2, n3, n5; "));
  EXPECT_TRUE(evaluate_lost(five_nodes(), node_table(five_nodes(), reports({"n1"})), {}).empty());
}

TEST(EvaluateLost, NamesTheNodeAndTheMoment) {
  const std::vector<LostTask> lost{{2, "n2", "TCP round 1 of 3", "it stopped answering"}};
  const auto findings =
      evaluate_lost(two_nodes(), node_table(two_nodes(), reports({"n1", "n1", "n2"})), lost);
  EXPECT_EQ(complaints(findings), "net.answer n2=CRITICAL");
  EXPECT_EQ(findings[0].evidence, "rank 2, during TCP round 1 of 3: it stopped answering");
}

TEST(EvaluateReports, AgreementHasNoFindings) {
  EXPECT_EQ(complaints(evaluate_reports(two_nodes(), reports({"n1", "n1", "n2"}))), "");
  EXPECT_TRUE(evaluate_reports(two_nodes(), {}).empty());
}

TEST(EvaluateReports, NodeThatResolvesTheLeaderDifferentlyIsNamed) {
  auto present = reports({"n1", "n1", "n2"});
  present[2].leader_addresses = {"10.9.9.9"};
  EXPECT_EQ(complaints(evaluate_reports(two_nodes(), present)), "name.leader n2/n1=WARNING");
}

TEST(EvaluateReports, LeaderThatCannotReachItselfIsCritical) {
  auto present = reports({"n1", "n1", "n2"});
  present[0].by_loopback = true;
  EXPECT_EQ(complaints(evaluate_reports(two_nodes(), present)),
            "net.leader_address n1/n1=CRITICAL");
}

TEST(EvaluateReports, DifferentMtusAreReported) {
  auto present = reports({"n1", "n1", "n2"});
  present[2].mtu = 1500;
  EXPECT_EQ(complaints(evaluate_reports(two_nodes(), present)), "net.mtu n2=WARNING");
  present[2].address = "127.0.0.1";  // loopback has a different MTU
  EXPECT_EQ(complaints(evaluate_reports(two_nodes(), present)), "");
}

TEST(EvaluateReports, TwoMtusWithoutAMajorityNameBothNodes) {
  auto present = reports({"n1", "n2"});
  present[1].mtu = 1500;
  const auto findings = evaluate_reports(two_nodes(), present);
  EXPECT_THAT(complaints(findings), HasSubstr("net.mtu n"));
  EXPECT_THAT(complaints(findings), HasSubstr("/n"));
}

TEST(EvaluateNames, AgreementHasNoFindings) {
  const std::map<std::string, std::vector<std::string>> same{{"n1", {"10.0.0.1"}},
                                                             {"n2", {"10.0.0.2"}}};
  EXPECT_EQ(complaints(evaluate_names({{"n1", same}, {"n2", same}, {"n3", same}})), "");
  EXPECT_EQ(complaints(evaluate_names({})), "");
}

TEST(EvaluateNames, TheMajorityIsRight) {
  const Resolutions resolutions{{"n1", {{"n3", {"10.0.0.3"}}}},
                                {"n2", {{"n3", {"10.0.0.3"}}}},
                                {"n4", {{"n3", {"10.9.9.9"}}}},
                                {"n5", {{"n3", {}}}}};
  EXPECT_EQ(complaints(evaluate_names(resolutions)),
            "name.resolution n4/n3=WARNING, name.resolution n5/n3=WARNING");
}

TEST(EvaluateNames, TwoNodesThatDisagreeHaveNoMajority) {
  const Resolutions resolutions{{"n1", {{"n3", {"10.0.0.3"}}}}, {"n2", {{"n3", {"10.9.9.9"}}}}};
  EXPECT_EQ(complaints(evaluate_names(resolutions)), "");
}

TEST(EvaluateNames, NodeMayResolveItselfDifferentlyButNotToLoopbackOnly) {
  const Resolutions resolutions{{"n1", {{"n1", {"127.0.1.1"}}}},
                                {"n2", {{"n1", {"10.0.0.1"}}, {"n2", {"192.168.0.2"}}}},
                                {"n3", {{"n1", {"10.0.0.1"}}, {"n2", {"10.0.0.2"}}}},
                                {"n4", {{"n1", {"10.0.0.1"}}, {"n2", {"10.0.0.2"}}}}};
  EXPECT_EQ(complaints(evaluate_names(resolutions)), "name.own n1=WARNING");
}

TEST(EvaluateNames, NodeThatCannotResolveItsOwnNameIsReported) {
  Resolutions resolutions;
  resolutions["n1"]["n1"] = {};
  resolutions["n2"]["n1"] = {"10.0.0.1"};
  resolutions["n3"]["n1"] = {"10.0.0.1"};
  EXPECT_EQ(complaints(evaluate_names(resolutions)), "name.resolution n1/n1=WARNING");
  // In this cluster, no name service knows the node names.
  const std::map<std::string, std::vector<std::string>> unknown{{"n1", {}}, {"n2", {}}};
  EXPECT_EQ(complaints(evaluate_names({{"n1", unknown}, {"n2", unknown}})), "");
}

TEST(EvaluateSuspension, BlamesNoOtherNode) {
  EXPECT_TRUE(evaluate_suspension(0).empty());
  const auto findings = evaluate_suspension(10.2);
  EXPECT_EQ(complaints(findings), "net.suspended =UNKNOWN");
  EXPECT_NE(findings[0].evidence.find("rank 0 was suspended for 10 s"), std::string::npos);
}

}  // namespace
}  // namespace ddp::check
