// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/stall_text.h"

#include <gtest/gtest.h>

namespace ddp::guard {
namespace {

using watch::Finding;
using watch::FindingKind;
using Speech = watch::StallReports::Speech;

std::string text_of(const Finding& finding, Speech speech = Speech::finding, bool ends = false) {
  watch::RanksReport ranks;
  for (std::uint32_t i = 0; i < 10; ++i) {
    const auto process = static_cast<pid_t>(i + 100);
    ranks.facts.push_back({i + 10, process, i == 9 ? 1000 : process, i == 0 ? "node1" : "node2"});
  }
  return stall_text(finding, {speech, finding.length}, "rank", ranks, ends);
}

Finding lasting(FindingKind kind, std::chrono::seconds length) {
  Finding finding;
  finding.kind = kind;
  finding.length = length;
  return finding;
}

TEST(StallText, SaysWhatIsMissingAndWhoDiffers) {
  Finding finding = lasting(FindingKind::stalled, std::chrono::seconds(60));
  const std::string start = "no rank has made progress for 60 s (processor, files, TCP)";
  EXPECT_EQ(text_of(finding), start + "; the step still runs");
  finding.failed = {1};
  finding.finished = {2, 4};
  finding.uninterruptible = {3};
  EXPECT_EQ(text_of(finding),
            start +
                "; rank 11 has failed; ranks 12, 14 have ended with 0; rank 13 cannot be "
                "interrupted (state D); the step still runs");
  finding.finished = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_NE(text_of(finding).find("ranks 10, 11, 12, 13, 14, 15, 16, 17 have ended"),
            std::string::npos);
  finding.finished = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_NE(text_of(finding).find("ranks 10, 11, 12, 13, 14, 15, 16, 17, ... have ended"),
            std::string::npos);
}

std::string waits_of(const std::vector<std::string>& channels,
                     const std::vector<std::string>& places = {}) {
  watch::RanksReport ranks;
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const std::string place = i < places.size() ? places[i] : "";
    ranks.waits.push_back({static_cast<std::uint32_t>(i), channels[i], place});
  }
  const Finding finding = lasting(FindingKind::stalled, std::chrono::seconds(60));
  std::string text =
      stall_text(finding, {Speech::finding, finding.length}, "torchrun's agent", ranks, false);
  const auto start = text.find("TCP)") + 4;
  return text.substr(start, text.find(';') - start);
}

TEST(StallText, SaysWhoWaitsInAnotherWay) {
  EXPECT_EQ(waits_of({"futex_wait", "locks_lock_inode_wait", "futex_wait", "futex_wait"}),
            ": rank 1 waits for a file lock, the others wait for another thread (futex)");
  EXPECT_EQ(waits_of({"futex_wait", "do_wait"}),
            ": rank 0 waits for another thread (futex), rank 1 waits for a child process");
  EXPECT_EQ(waits_of({"futex_wait", "futex_wait"}), ": all wait for another thread (futex)");
  EXPECT_EQ(waits_of({"do_wait", "", "do_wait"}), ": ranks 0, 2 wait for a child process");
  EXPECT_EQ(waits_of({"futex_wait"}), ": rank 0 waits for another thread (futex)");
  EXPECT_EQ(waits_of({"", ""}), "");
  EXPECT_EQ(waits_of({"a", "b", "c", "d", "e"}), "") << "as many ways as ranks say nothing";
}

TEST(StallText, SaysWhereARankStands) {
  EXPECT_EQ(waits_of({"futex_wait", "futex_wait", "futex_wait"},
                     {"train.py:88 in step", "train.py:88 in step", "data.py:17 in load"}),
            ": rank 2 waits for another thread (futex) at data.py:17 in load, the others wait for "
            "another thread (futex) at train.py:88 in step");
  EXPECT_EQ(waits_of({"", ""}, {"train.py:1", "train.py:1"}), ": all wait at train.py:1");
  EXPECT_EQ(waits_of({"do_wait", "do_wait", "do_wait", "do_wait", "futex_wait"},
                     {"a.py:1", "a.py:2", "a.py:3", "a.py:4", "a.py:5"}),
            ": rank 4 waits for another thread (futex), the others wait for a child process")
      << "if all stand at different places, that tells nothing";
}

TEST(StallText, SaysHowToContinueAStoppedRank) {
  Finding finding = lasting(FindingKind::stopped, std::chrono::minutes(5));
  finding.stopped = {1};
  EXPECT_EQ(text_of(finding),
            "rank 11 has been stopped for 5 min; to continue, run kill -CONT 101 on node2");
  finding.stopped = {1, 3};
  EXPECT_EQ(text_of(finding),
            "ranks 11, 13 have been stopped for 5 min; to continue, run kill -CONT 101 103 on "
            "node2");
  finding.failed = {0};
  EXPECT_EQ(text_of(finding),
            "ranks 11, 13 have been stopped for 5 min; rank 10 has failed; to continue, run kill "
            "-CONT 101 103 on node2");
  finding.failed = {};
  finding.stopped = {9};
  EXPECT_EQ(text_of(finding),
            "a process of rank 19 has been stopped for 5 min; to continue, run kill -CONT 1000 on "
            "node2");
  finding.stopped = {1, 9};
  EXPECT_EQ(text_of(finding).find("processes of ranks 11, 19 have been stopped for 5 min; "), 0);
  finding.stopped = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_NE(text_of(finding).find(
                "run kill -CONT 100 on node1, kill -CONT 101 102 103 104 105 106 107 on node2"),
            std::string::npos);
  finding.stopped.push_back(8);
  EXPECT_EQ(text_of(finding),
            "ranks 10, 11, 12, 13, 14, 15, 16, 17, ... have been stopped for 5 min");
}

TEST(StallText, CallsTheTasksByTheirName) {
  Finding finding = lasting(FindingKind::stopped, std::chrono::minutes(5));
  finding.stopped = {0};
  watch::RanksReport ranks;
  ranks.facts = {{1, 100, 100}};
  EXPECT_EQ(
      stall_text(finding, {Speech::finding, finding.length}, "torchrun's agent", ranks, false),
      "torchrun's agent 1 has been stopped for 5 min; to continue, run kill -CONT 100");
}

TEST(StallText, SaysThatTheStepEnds) {
  Finding finding = lasting(FindingKind::stalled, std::chrono::minutes(10));
  EXPECT_EQ(text_of(finding, Speech::finding, true),
            "no rank has made progress for 10 min (processor, files, TCP); ending the step");
  finding.kind = FindingKind::stopped;
  finding.stopped = {1};
  EXPECT_EQ(text_of(finding, Speech::finding, true),
            "rank 11 has been stopped for 10 min; ending the step");
}

TEST(StallText, SaysThatThereIsProgressAgainOrNothing) {
  const Finding finding = lasting(FindingKind::none, std::chrono::seconds(75));
  EXPECT_EQ(text_of(finding, Speech::progress), "the ranks make progress again, after 75 s");
  EXPECT_EQ(text_of(finding, Speech::nothing), "");
}

}  // namespace
}  // namespace ddp::guard
