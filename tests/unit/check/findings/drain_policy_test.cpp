// SPDX-License-Identifier: Apache-2.0
// Tests which nodes may be drained, and which may be resumed.
#include "ddp_runtime/check/findings/drain_policy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/errors.h"

namespace ddp::check {
namespace {

std::vector<SlurmNode> cluster(int nodes) {
  std::vector<SlurmNode> list;
  for (int i = 0; i < nodes; ++i) list.push_back({"n" + std::to_string(10 + i), "idle", "none"});
  return list;
}

void drain(SlurmNode& node, const std::string& reason) {
  node.state = "drained";
  node.reason = reason;
}

TEST(DrainPolicy, ReadsEachNodeOfSinfoOnce) {
  const auto nodes = slurm_nodes_in(
      "n1|idle|none\nn2|draining*|ddp-check:storage.shm\nn1|idle|none\n|x|y\nrubbish\n"
      "n3|mixed|a | b");
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_FALSE(is_drained(nodes[0]));
  EXPECT_TRUE(is_drained(nodes[1]));
  EXPECT_EQ(nodes[1].reason, "ddp-check:storage.shm");
  EXPECT_EQ(nodes[2].reason, "a | b");
}

TEST(DrainPolicy, LimitsAreNumbersOrPercentages) {
  EXPECT_EQ(most_drained(drain_limit_from("20"), 500), 20);
  EXPECT_EQ(most_drained(drain_limit_from("10%"), 500), 50);
  EXPECT_EQ(most_drained(drain_limit_from("2.5%"), 100), 2);
  EXPECT_EQ(most_drained(drain_limit_from("10%"), 5), 1);
  for (const char* text : {"", "%", "0", "-3", "0%", "101%", "many", "10 %", "1e3"}) {
    EXPECT_THROW(drain_limit_from(text), UsageError) << text;
  }
}

TEST(DrainPolicy, NodesDrainedByOthersCountTowardTheLimit) {
  auto nodes = cluster(20);
  const DrainLimit limit = drain_limit_from("10%");
  EXPECT_TRUE(may_drain(nodes, "n15", limit));
  drain(nodes[0], "a person");
  EXPECT_TRUE(may_drain(nodes, "n15", limit));
  drain(nodes[1], "ddp-check:storage.shm");
  EXPECT_FALSE(may_drain(nodes, "n15", limit));
  EXPECT_TRUE(may_drain(nodes, "n11", limit));  // already drained, so a new reason is allowed
}

// Ten nodes lose the same file server at the same moment, when none of them sees any drained nodes.
TEST(DrainPolicy, AtMostTheLimitStaysDrainedWhenManyDrainAtOnce) {
  auto nodes = cluster(20);
  const DrainLimit limit = drain_limit_from("10%");
  for (int i = 3; i < 13; ++i) drain(nodes[static_cast<std::size_t>(i)], "ddp-check:storage.dir");
  int staying = 0;
  for (int i = 3; i < 13; ++i) {
    staying += must_come_back(nodes, nodes[static_cast<std::size_t>(i)].name, limit) ? 0 : 1;
  }
  EXPECT_EQ(staying, 2);
  drain(nodes[0], "a person");
  EXPECT_FALSE(must_come_back(nodes, "n13", limit));
  EXPECT_TRUE(must_come_back(nodes, "n14", limit));
}

Verdict verdict_with(const std::string& check, const std::string& device, Severity severity) {
  Verdict verdict;
  verdict.nodes = {"n1"};
  verdict.findings.add(
      Finding{.check = check, .severity = severity, .node = "n1", .device = device});
  return verdict;
}

TEST(DrainPolicy, ANodeIsCleanOnlyIfTheSameCheckIsRepeated) {
  const auto fine = verdict_with("storage.shm", "/dev/shm", Severity::ok);
  EXPECT_TRUE(made_again_and_clean(fine, "n1", "ddp-check:storage.shm /dev/shm"));
  EXPECT_FALSE(made_again_and_clean(fine, "n1", "ddp-check:storage.dir /scratch"));
  EXPECT_FALSE(made_again_and_clean(fine, "n2", "ddp-check:storage.shm /dev/shm"));
  // A clean check of the node does not test the network.
  EXPECT_FALSE(made_again_and_clean(fine, "n1", "ddp-check:tcp.send"));
  EXPECT_TRUE(made_again_and_clean(verdict_with("interface.mtu", "e\x1b[0", Severity::ok), "n1",
                                   "ddp-check:interface.mtu e?[0"))
      << "a reason has no control characters";
  // Reasons from others stay, even if they look like ours.
  for (const char* reason : {"", "none", "storage.shm /dev/shm", "not ddp-check:storage.shm"}) {
    EXPECT_FALSE(made_again_and_clean(fine, "n1", reason)) << reason;
  }
  for (const Severity severity : {Severity::unknown, Severity::critical}) {
    EXPECT_FALSE(made_again_and_clean(verdict_with("storage.shm", "/dev/shm", severity), "n1",
                                      "ddp-check:storage.shm /dev/shm"));
  }
  auto other_fault = fine;
  other_fault.findings.add(
      Finding{.check = "gpu.memory", .severity = Severity::critical, .node = "n1"});
  EXPECT_FALSE(made_again_and_clean(other_fault, "n1", "ddp-check:storage.shm /dev/shm"));
}

TEST(DrainPolicy, OnlyConsecutiveCleanRunsForTheSameReasonCount) {
  CleanRuns runs = clean_runs_in("");
  for (int i = 1; i <= 3; ++i) {
    runs = counted_on(clean_runs_in(text_of(runs)), "ddp-check:a b", true);
    EXPECT_EQ(runs.count, i);
  }
  EXPECT_EQ(counted_on(runs, "ddp-check:c", true).count, 1);
  EXPECT_EQ(counted_on(runs, "ddp-check:a b", false).count, 0);
  for (const char* text : {"x", "-1 a", "1", "many a"}) EXPECT_EQ(clean_runs_in(text).count, 0);
}

}  // namespace
}  // namespace ddp::check
