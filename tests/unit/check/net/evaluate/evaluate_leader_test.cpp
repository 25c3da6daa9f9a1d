// SPDX-License-Identifier: Apache-2.0
// Tests who is to blame if rank 0 does not reach itself by the leader's name: the job's MASTER_ADDR
// and the site's name service are no faults of a node, which would be drained for them.
#include "ddp_runtime/check/net/evaluate/evaluate_leader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/unit/check/net/evaluate/evaluate_fixtures.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

// A step with one task on each of n1, n2, ..; rank 0 runs on n1.
JobStep step_of(int nodes, const std::string& leader_host) {
  JobStep step;
  step.size = nodes;
  for (int i = 1; i <= nodes; ++i) {
    step.nodes.push_back({"n", 1});
    step.nodes.back().name += std::to_string(i);
  }
  step.leader_host = leader_host;
  step.leader_port = 5000;
  return step;
}

// The reports of the first `count` nodes. Rank 0 has found itself at a loopback address only, and
// found these addresses under the leader's name.
std::map<int, Hello> lost_leader(const JobStep& step, int count,
                                 const std::vector<std::string>& addresses,
                                 const std::string& error = "") {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(step.nodes[static_cast<std::size_t>(i)].name);
  auto present = reports(names);
  for (auto& [rank, hello] : present) hello.leader_host = step.leader_host;
  Hello& leader = present[0];
  leader.by_loopback = true;
  leader.leader_addresses = addresses;
  leader.leader_lookup_error = error;
  leader.rails["eth0"].address = "10.0.0.1";
  leader.rails["lo"].address = "127.0.0.1";
  return present;
}

Finding leader_address(const std::vector<Finding>& findings) {
  for (const auto& finding : findings) {
    if (finding.check == "net.leader_address") return finding;
  }
  return {.check = "no such finding"};
}

Finding alone(const std::string& host, const std::vector<std::string>& addresses,
              const std::string& error = "") {
  const JobStep step = step_of(4, host);
  return leader_address(evaluate_leader(step, lost_leader(step, 1, addresses, error)));
}

TEST(EvaluateLeader, WrongMasterAddrIsAFaultOfTheJob) {
  for (const auto& [host, found] : {std::pair{"10.99.9.9", "10.99.9.9"}, {"other", "10.0.0.7"}}) {
    const Finding finding = alone(host, {found});
    EXPECT_EQ(complaints({finding}),
              std::string("net.leader_address MASTER_ADDR=") + host + "=CRITICAL");
    EXPECT_THAT(finding.evidence, HasSubstr("n1 has the addresses 10.0.0.1"));
    EXPECT_THAT(finding.action, HasSubstr(std::string("MASTER_ADDR is ") + host + ": unset it"));
  }
  EXPECT_THAT(alone("other", {"10.0.0.7"}).evidence,
              HasSubstr("rank 0 cannot connect to other port 5000; n1 resolves this name to "
                        "10.0.0.7; "));
}

TEST(EvaluateLeader, NameServiceIsAFaultOfTheSite) {
  const Finding dead = alone("n1", {}, "Temporary failure in name resolution");
  EXPECT_EQ(complaints({dead}), "net.leader_address MASTER_ADDR=n1=CRITICAL");
  EXPECT_EQ(dead.node, "");
  EXPECT_THAT(dead.evidence, HasSubstr("n1 does not find an address of this name: Temporary"));
  const Finding stale = alone("n1.cluster", {"10.0.0.99"});
  EXPECT_EQ(stale.node, "");
  for (const auto& finding : {dead, stale}) {
    EXPECT_THAT(finding.action, HasSubstr("correct the name service (DNS, /etc/hosts)"));
  }
}

TEST(EvaluateLeader, RightAddressThatCannotBeReachedNamesTheFirewall) {
  const Finding finding = alone("n1", {"10.0.0.1"});
  EXPECT_EQ(finding.node, "");
  EXPECT_THAT(finding.action, HasSubstr("check the firewall of n1"));
}

TEST(EvaluateLeader, NodeThatAloneResolvesTheNameWronglyIsNamed) {
  const JobStep step = step_of(5, "n1");
  const Finding finding =
      leader_address(evaluate_leader(step, lost_leader(step, 4, {"10.77.0.1"})));
  EXPECT_EQ(finding.node, "n1");
  EXPECT_THAT(finding.evidence, HasSubstr("3 of 5 nodes resolve it to 10.0.0.1, where they reach"));
  EXPECT_EQ(leader_address(evaluate_leader(step, lost_leader(step, 4, {}, "no answer"))).node,
            "n1");
}

TEST(EvaluateLeader, WithoutAMajorityOfOthersNoNodeIsNamed) {
  for (const auto& [nodes, present] : {std::pair{2, 2}, {5, 3}}) {
    const JobStep step = step_of(nodes, "n1");
    const Finding finding =
        leader_address(evaluate_leader(step, lost_leader(step, present, {"10.77.0.1"})));
    EXPECT_EQ(finding.severity, Severity::critical);
    EXPECT_EQ(finding.node, "") << nodes;
  }
}

TEST(EvaluateLeader, AnotherMasterAddrOfRankZeroIsNoFaultOfItsNode) {
  const JobStep step = step_of(5, "typo");
  auto present = lost_leader(step, 5, {}, "Name or service not known");
  for (auto& [rank, hello] : present) hello.leader_host = rank == 0 ? "typo" : "n1";
  const auto findings = evaluate_leader(step, present);
  EXPECT_EQ(complaints(findings), "net.leader_address MASTER_ADDR=typo=CRITICAL");
  EXPECT_THAT(leader_address(findings).action, HasSubstr("MASTER_ADDR is typo"));
}

// Nobody reaches rank 0 by a wrong name, not even the other tasks of its node.
TEST(EvaluateLeader, SilentTasksAreNoFaultOfTheirNodes) {
  JobStep step = step_of(1, "typo");
  step.size = step.nodes[0].tasks = 3;
  const auto missing = [&step](int present) {
    return evaluate_roll_call(step, lost_leader(step, present, {}), std::chrono::seconds(30), {});
  };
  EXPECT_EQ(complaints(missing(1)), "net.missing=CRITICAL");
  EXPECT_THAT(missing(1).front().evidence,
              HasSubstr("1 of 3 tasks reported from n1, where rank 0"));
  step = step_of(5, "typo");
  for (const int present : {1, 3}) {
    EXPECT_EQ(complaints(missing(present)), "net.missing=CRITICAL");
    EXPECT_THAT(missing(present).front().evidence, HasSubstr("rank 0 cannot connect to itself"));
  }
}

TEST(EvaluateLeader, SilentNodeIsNamedIfOnlyTheLeaderIsInError) {
  const JobStep step = step_of(5, "n1");
  EXPECT_EQ(complaints(evaluate_roll_call(step, lost_leader(step, 4, {"10.77.0.1"}),
                                          std::chrono::seconds(30), {})),
            "net.missing n5=CRITICAL");
}

}  // namespace
}  // namespace ddp::check
