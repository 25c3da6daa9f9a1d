// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/node_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::watch {
namespace {

using testing::SizeIs;

RanksReport two_ranks() {
  RanksReport ranks;
  ranks.ranks = {
      {RankState::running, std::chrono::seconds(61), std::nullopt, std::chrono::milliseconds(1500)},
      {RankState::failed, std::nullopt, std::chrono::seconds(2), std::nullopt}};
  ranks.facts = {{8, 4711, 4712, "node2"}, {9, 4713, 0, "node2"}};
  ranks.waits = {{8, "locks_lock_inode_wait", "data.py:17 in load"}};
  return ranks;
}

TEST(NodeReport, SurvivesItsText) {
  const auto ranks = parse_report(to_text(two_ranks()), "node2");
  ASSERT_TRUE(ranks);
  ASSERT_THAT(ranks->ranks, SizeIs(2));
  EXPECT_EQ(ranks->ranks[0].state, RankState::running);
  EXPECT_EQ(ranks->ranks[0].quiet, std::chrono::seconds(61));
  EXPECT_EQ(ranks->ranks[0].stopped, std::nullopt);
  EXPECT_EQ(ranks->ranks[0].uninterruptible, std::chrono::milliseconds(1500));
  EXPECT_EQ(ranks->ranks[1].state, RankState::failed);
  EXPECT_EQ(ranks->ranks[1].stopped, std::chrono::seconds(2));
  EXPECT_EQ(ranks->facts[0].rank, 8U);
  EXPECT_EQ(ranks->facts[0].task, 4711);
  EXPECT_EQ(ranks->facts[0].stopped, 4712);
  EXPECT_EQ(ranks->facts[1].node, "node2");
  ASSERT_THAT(ranks->waits, SizeIs(1));
  EXPECT_EQ(ranks->waits[0].rank, 8U);
  EXPECT_EQ(ranks->waits[0].channel, "locks_lock_inode_wait");
  EXPECT_EQ(ranks->waits[0].place, "data.py:17 in load");
}

TEST(NodeReport, KeepsAFileNameOfAnyBytesInItsCell) {
  RanksReport ranks = two_ranks();
  ranks.waits[0].place = "a\nrank\t1.py:2 in f";
  const auto parsed = parse_report(to_text(ranks), "");
  ASSERT_TRUE(parsed);
  EXPECT_THAT(parsed->ranks, SizeIs(2));
  EXPECT_EQ(parsed->waits[0].place, "a?rank?1.py:2 in f");
  const auto hostile =
      parse_report("rank\t1\t0\t-\t-\t-\t1\t0\t1\nwait\t1\t\x1b[2J\t\x1b]0;x\n", "\x1b[31m");
  ASSERT_TRUE(hostile);
  EXPECT_EQ(hostile->waits[0].channel, "?[2J");
  EXPECT_EQ(hostile->waits[0].place, "?]0;x");
  EXPECT_EQ(hostile->facts[0].node, "?[31m");
}

TEST(NodeReport, LeavesOutWhatDoesNotFit) {
  RanksReport ranks;
  for (std::uint32_t i = 0; i < 1024; ++i) {
    ranks.ranks.push_back({RankState::running, std::chrono::hours(999), {}, {}});
    ranks.facts.push_back({4'000'000'000U + i, 4'000'000, 4'000'000});
    ranks.waits.push_back({i, std::string(31, 'c'), std::string(127, 'p')});
  }
  const std::string text = to_text(ranks);
  EXPECT_LE(text.size(), kMaxReportText);
  const auto parsed = parse_report(text, "");
  ASSERT_TRUE(parsed);
  EXPECT_THAT(parsed->ranks, SizeIs(1024));
  ASSERT_THAT(parsed->waits, SizeIs(1024));
  EXPECT_EQ(parsed->waits[0].channel, "");
  EXPECT_EQ(parsed->waits[0].place, "");
}

TEST(NodeReport, RefusesOtherTexts) {
  const std::string good = to_text(two_ranks());
  for (const std::string bad :
       {"x", "\n", "rank\n", "rank\t1\t9\t-\t-\t-\t1\t0\t0\n", "rank\t1\t0\tx\t-\t-\t1\t0\t0\n",
        "rank\t-1\t0\t-\t-\t-\t1\t0\t0\n", "rank\t1\t0\t-\t-\t-\t99999999999\t0\n", "node\t1\n"}) {
    EXPECT_FALSE(parse_report(bad, "")) << bad;
    EXPECT_FALSE(parse_report(good + bad, "")) << bad;
  }
  EXPECT_FALSE(parse_report(good.substr(0, good.size() - 1), "")) << "cut off";
  EXPECT_TRUE(parse_report("", ""));
}

}  // namespace
}  // namespace ddp::watch
