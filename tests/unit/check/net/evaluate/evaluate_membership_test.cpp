// SPDX-License-Identifier: Apache-2.0
// Tests which nodes and tasks are named when they do not report, or report differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_membership.h"
#include "ddp_runtime/check/net/evaluate/evaluate_names.h"
#include "tests/unit/check/net/evaluate/evaluate_fixtures.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

// A step with one task on each of these nodes; a node may be named more than once.
JobStep step_on(const std::vector<std::string>& nodes) {
  JobStep step;
  step.size = static_cast<int>(nodes.size());
  for (const auto& node : nodes) {
    if (step.nodes.empty() || step.nodes.back().name != node) step.nodes.push_back({node, 0});
    ++step.nodes.back().tasks;
  }
  step.leader_host = "n1";
  return step;
}

const JobStep kTwoNodes = step_on({"n1", "n1", "n2"});
const JobStep kFiveNodes = step_on({"n1", "n2", "n3", "n4", "n5"});

std::vector<Finding> roll_call(const JobStep& step, const std::vector<std::string>& present,
                               const std::vector<std::string>& refusals = {}) {
  return evaluate_roll_call(step, reports(present), std::chrono::seconds(30), refusals);
}

TEST(EvaluateRollCall, NamesWhoIsMissing) {
  EXPECT_EQ(complaints(roll_call(kTwoNodes, {"n1", "n1", "n2"})), "");
  const auto one_task = roll_call(kTwoNodes, {"n1", "", "n2"});
  EXPECT_EQ(complaints(one_task), "net.missing n1=CRITICAL");
  EXPECT_EQ(one_task.front().evidence, "1 of 2 tasks reported");
  JobStep on_unknown_nodes = kTwoNodes;
  on_unknown_nodes.nodes.clear();
  EXPECT_EQ(complaints(roll_call(on_unknown_nodes, {"n1", "", ""})),
            "net.missing rank 1,2=CRITICAL");
  EXPECT_EQ(complaints(roll_call(kTwoNodes, {"n1", "n1", "n2"}, {"n9 is of another job step"})),
            "net.refused=WARNING");
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
  JobStep with_a_missing_node = kTwoNodes;
  with_a_missing_node.job_nodes = 1;
  EXPECT_EQ(evaluate_no_pair(with_a_missing_node).severity, Severity::unknown);
}

// Rank 0 with a dead link hears no other node. It must not exclude and drain all good nodes.
TEST(EvaluateRollCall, NamesNoNodeIfMostAreMissing) {
  const auto alone = roll_call(kFiveNodes, {"n1", "", "", "", ""});
  EXPECT_EQ(complaints(alone), "net.missing=CRITICAL");
  EXPECT_THAT(alone.front().evidence, HasSubstr("4 of 5 nodes: n2, n3, n4, n5; "));
  EXPECT_THAT(alone.front().action, HasSubstr("one that all nodes reach"));
  EXPECT_EQ(complaints(roll_call(kTwoNodes, {"n1", "n1", ""})), "net.missing=CRITICAL")
      << "the only other one";
  EXPECT_EQ(complaints(roll_call(kFiveNodes, {"n1", "", "", "", "n5"})), "net.missing=CRITICAL");
  EXPECT_EQ(complaints(roll_call(kFiveNodes, {"n1", "", "", "n4", "n5"})),
            "net.missing n2=CRITICAL, net.missing n3=CRITICAL");
}

TEST(EvaluateRollCall, FewOfManyMissingNodesAreListed) {
  std::vector<std::string> nodes;
  for (int i = 1; i <= 1000; ++i) nodes.push_back("n" + std::to_string(i));
  const auto findings = roll_call(step_on(nodes), {"n1"});
  EXPECT_EQ(complaints(findings), "net.missing=CRITICAL");
  EXPECT_THAT(findings.front().evidence, HasSubstr("999 of 1000 nodes: n2, n3, n4, n5, n6, n7, n8, "
                                                   "n9 and 991 more;"));
}

std::vector<Finding> lost_of(const JobStep& step, const std::vector<std::string>& present,
                             const std::vector<LostTask>& lost) {
  return evaluate_lost(step, node_table(step, reports(present)), lost);
}

TEST(EvaluateLost, NamesNoNodeIfMostAreSilent) {
  const std::vector<LostTask> lost{{1, "n2", "TCP round 1 of 3", "it stopped answering"},
                                   {2, "n3", "TCP round 1 of 3", "it stopped answering"}};
  EXPECT_EQ(complaints(lost_of(kFiveNodes, {"n1", "n2", "n3", "n4", "n5"}, lost)),
            "net.answer n2=CRITICAL, net.answer n3=CRITICAL");
  const auto findings = lost_of(kFiveNodes, {"n1", "n2", "n3", "n4", ""}, lost);
  EXPECT_EQ(complaints(findings), "net.answer=CRITICAL");
  EXPECT_THAT(findings.front().evidence, HasSubstr("3 of 5 nodes: n2, n3, n5; "));
  EXPECT_TRUE(lost_of(kFiveNodes, {"n1"}, {}).empty());
}

TEST(EvaluateLost, NamesTheNodeAndTheMoment) {
  const auto findings = lost_of(kTwoNodes, {"n1", "n1", "n2"},
                                {{2, "n2", "TCP round 1 of 3", "it stopped answering"}});
  EXPECT_EQ(complaints(findings), "net.answer n2=CRITICAL");
  EXPECT_EQ(findings[0].evidence, "rank 2, during TCP round 1 of 3: it stopped answering");
}

TEST(EvaluateReports, DifferencesNameTheNode) {
  const auto said = [](const std::function<void(std::map<int, Hello>&)>& change) {
    auto present = reports({"n1", "n1", "n2"});
    change(present);
    return complaints(evaluate_reports(kTwoNodes, present));
  };
  EXPECT_EQ(said([](auto&) {}), "");
  EXPECT_EQ(said([](auto& present) { present.clear(); }), "");
  EXPECT_EQ(said([](auto& present) { present[2].leader_addresses = {"10.9.9.9"}; }),
            "name.leader n2/n1=WARNING");
  EXPECT_EQ(said([](auto& present) { present[0].by_loopback = true; }),
            "net.leader_address MASTER_ADDR=n1=CRITICAL");
  EXPECT_EQ(said([](auto& present) { present[2].mtu = 1500; }), "net.mtu n2=WARNING");
  EXPECT_EQ(said([](auto& present) {
              present[2].mtu = 1500;
              present[2].address = "127.0.0.1";  // loopback has a different MTU
            }),
            "");
}

TEST(EvaluateReports, TwoMtusWithoutAMajorityNameBothNodes) {
  auto present = reports({"n1", "n2"});
  present[1].mtu = 1500;
  const auto findings = evaluate_reports(kTwoNodes, present);
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
  EXPECT_EQ(complaints(findings), "net.suspended=UNKNOWN");
  EXPECT_NE(findings[0].evidence.find("rank 0 was suspended for 10 s"), std::string::npos);
}

}  // namespace
}  // namespace ddp::check
