// SPDX-License-Identifier: Apache-2.0
// Tests findings about nodes that differ in facts, clocks and packet sizes, and the probe of packet
// sizes.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ddp_runtime/check/net/evaluate/evaluate_drift.h"
#include "ddp_runtime/check/net/measure/path_probe.h"
#include "ddp_runtime/check/net/measure/way_out.h"
#include "tests/unit/check/complaints.h"

namespace ddp::check {
namespace {

std::map<int, Hello> tasks(const std::vector<std::string>& kernels) {
  std::map<int, Hello> present;
  int rank = 0;
  for (const auto& kernel : kernels) {
    Hello hello;
    hello.node = std::string("n") + static_cast<char>('1' + rank);
    hello.facts["kernel"] = kernel;
    present[rank++] = hello;
  }
  return present;
}

TEST(Drift, MajorityIsRightAndTwoNodesHaveNoMajority) {
  EXPECT_EQ(complaints(evaluate_drift(tasks({"6.1", "6.1", "6.1"}))), "");
  EXPECT_EQ(complaints(evaluate_drift(tasks({"6.1", "5.9", "6.1"}))), "drift.kernel n2=WARNING");
  EXPECT_EQ(complaints(evaluate_drift(tasks({"6.1", "5.9"}))), "drift.kernel n2/n1=WARNING");
  EXPECT_EQ(complaints(evaluate_drift({})), "");
}

TEST(Drift, FactsThatSomeNodesLackAreDifferences) {
  auto present = tasks({"6.1", "6.1", "6.1"});
  present[0].facts["driver.nvidia"] = present[1].facts["driver.nvidia"] = "535.104.05";
  EXPECT_EQ(complaints(evaluate_drift(present)), "drift.driver.nvidia n3=WARNING");
  present[1].facts.erase("driver.nvidia");
  EXPECT_EQ(complaints(evaluate_drift(present)), "drift.driver.nvidia n1=WARNING");
}

TEST(Clocks, AreComparedWithTheMedianNotTheLeader) {
  const auto present = tasks({"", "", ""});
  EXPECT_EQ(complaints(evaluate_clocks({{{0, 0.0}, {1, 0.3}, {2, -0.2}}, {}}, present)), "");
  // The leader's own clock is an hour slow.
  EXPECT_EQ(complaints(evaluate_clocks({{{0, 0.0}, {1, 3600}, {2, 3600.1}}, {}}, present)),
            "clock.offset n1=WARNING");
}

TEST(Clocks, JumpIsDetected) {
  const auto present = tasks({"", "", ""});
  const ClockOffsets offsets{{{0, 0.0}, {1, 0.1}, {2, 0.0}}, {{0, 0.0}, {1, -59.0}}};
  EXPECT_EQ(complaints(evaluate_clocks(offsets, present)), "clock.jump n2=WARNING");
}

std::vector<PathResult> paths(int nodes, int small) {
  std::vector<PathResult> results;
  for (const auto& round : all_rounds(nodes)) {
    for (const auto& pair : round) {
      const bool cut = pair.a == small || pair.b == small;
      results.push_back({pair, 9000, 9000, cut ? 1500 : 9000, cut ? 1500 : 9000});
    }
  }
  return results;
}

TEST(Paths, SmallerPacketsNameTheNodeOrTheLink) {
  const std::vector<std::string> nodes{"n1", "n2", "n3", "n4"};
  EXPECT_EQ(complaints(evaluate_paths(nodes, paths(4, -1))), "");
  EXPECT_EQ(complaints(evaluate_paths(nodes, paths(4, 2))), "net.path_mtu n3=WARNING");
  auto one = paths(4, -1);
  one[0].arrived_at_b = 1500;  // in one direction only
  EXPECT_EQ(complaints(evaluate_paths(nodes, one)), "net.path_mtu n1/n4=WARNING");
}

TEST(Paths, WithoutDatagramsTheResultIsUnknown) {
  const std::vector<std::string> nodes{"n1", "n2"};
  EXPECT_EQ(complaints(evaluate_paths(nodes, std::vector<PathResult>{{{0, 1}, 1500, 1500, 0, 0}})),
            "net.path_mtu=UNKNOWN");
  EXPECT_EQ(complaints(evaluate_paths(nodes, {})), "net.path_mtu=UNKNOWN");
}

TEST(PathProbe, ReturnsTheLargestPacketThatArrives) {
  const PathProbe one;
  const PathProbe other;
  const auto soon = [] { return Clock::now() + std::chrono::milliseconds(200); };
  const auto late = [] { return Clock::now() + std::chrono::seconds(120); };
  one.send("127.0.0.1", other.port(), 9000, 9000, 77);
  EXPECT_EQ(other.receive(77, late()), 9000);
  EXPECT_EQ(other.receive(78, soon()), 0);  // ignores datagrams from the other probe
  one.send("127.0.0.1", other.port(), 1500, 1400, 79);
  EXPECT_EQ(other.receive(79, soon()), 1400);
  EXPECT_EQ(other.receive(80, soon()), 0);
  one.send("127.0.0.1", other.port(), 65'536, 65'536, 81);  // the MTU of loopback
  EXPECT_EQ(other.receive(81, late()), 65'536);
}

TEST(WayOut, OfTheMachinesOwnAddressesIsLoopback) {
  for (const char* own : {"127.0.0.1", "127.9.9.9"}) {
    const auto way = way_out_to(own);
    ASSERT_TRUE(way) << own;
    EXPECT_TRUE(way->loopback);
    EXPECT_GT(way->mtu, 0);
  }
  EXPECT_FALSE(way_out_to("no address"));
  EXPECT_FALSE(way_out_to(""));
}

}  // namespace
}  // namespace ddp::check
