// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/stall_rule.h"

#include <gtest/gtest.h>

namespace ddp::watch {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using Ranks = std::vector<std::size_t>;
using Speech = StallReports::Speech;

RankReport quiet(int length) {
  return {RankState::running, seconds(length), std::nullopt, std::nullopt};
}
RankReport stopped(int length) {
  return {RankState::running, seconds(length), seconds(length), std::nullopt};
}
RankReport uninterruptible(int length) {
  return {RankState::running, seconds(length), std::nullopt, seconds(length)};
}
const RankReport kBusy{};
const RankReport kFinished{RankState::finished, std::nullopt, std::nullopt, std::nullopt};
const RankReport kFailed{RankState::failed, std::nullopt, std::nullopt, std::nullopt};

Finding found(const std::vector<RankReport>& ranks, int stall = 60) {
  return find_stall(ranks, seconds(stall));
}

TEST(StallRule, NeedsAllRunningRanksQuietForLongEnough) {
  EXPECT_EQ(found({quiet(60), quiet(59)}).kind, FindingKind::none);
  EXPECT_EQ(found({quiet(60), kBusy}).kind, FindingKind::none);
  const Finding finding = found({quiet(80), quiet(60)});
  EXPECT_EQ(finding.kind, FindingKind::stalled);
  EXPECT_EQ(finding.length, seconds(60));
}

TEST(StallRule, NamesTheRanksThatDiffer) {
  const Finding finding =
      found({quiet(60), kFinished, uninterruptible(70), kFailed, uninterruptible(60)});
  EXPECT_EQ(finding.kind, FindingKind::stalled);
  EXPECT_EQ(finding.finished, Ranks{1});
  EXPECT_EQ(finding.failed, Ranks{3});
  EXPECT_EQ(finding.uninterruptible, (Ranks{2, 4}));
  EXPECT_EQ(finding.stopped, Ranks{});
}

TEST(StallRule, IgnoresAMomentInASleepThatCannotBeInterrupted) {
  RankReport report = quiet(60);
  report.uninterruptible = seconds(1);
  EXPECT_EQ(found({quiet(60), report}).uninterruptible, Ranks{});
}

TEST(StallRule, NamesAStoppedRankThatOthersWaitFor) {
  EXPECT_EQ(found({kBusy, stopped(60)}).kind, FindingKind::none);
  EXPECT_EQ(found({quiet(60), kBusy, stopped(59)}).kind, FindingKind::none);
  const Finding finding = found({quiet(60), kBusy, stopped(70)});
  EXPECT_EQ(finding.kind, FindingKind::stopped);
  EXPECT_EQ(finding.length, seconds(70));
  EXPECT_EQ(finding.stopped, Ranks{2});
  EXPECT_EQ(found({quiet(60), stopped(59)}).kind, FindingKind::none);
  EXPECT_EQ(found({quiet(80), stopped(61)}).kind, FindingKind::stopped);
}

TEST(StallRule, NamesAStoppedRankThatIsAlone) {
  RankReport report = stopped(60);
  report.quiet.reset();  // a helper of it still runs
  EXPECT_EQ(found({kFinished, report}).kind, FindingKind::stopped);
}

TEST(StallRule, KnowsWhenNoRankRuns) {
  EXPECT_EQ(found({kFinished, kFailed}).kind, FindingKind::over);
}

TEST(StallRule, WaitsForASecondAtLeast) {
  EXPECT_EQ(found({quiet(0)}, 0).kind, FindingKind::none);
  EXPECT_EQ(found({quiet(1)}, 0).kind, FindingKind::stalled);
}

Finding stall_of(Clock::duration length) {
  return {FindingKind::stalled, length, {}, {}, {}, {}};
}

// The minutes at which a stall is told that is found after `first` minutes and lasts 41.
std::vector<int> told(StallReports& reports, int first) {
  std::vector<int> all;
  for (int i = first; i <= 41; ++i) {
    if (reports.update(stall_of(minutes(i))).speech == Speech::finding) all.push_back(i);
  }
  return all;
}

TEST(StallReports, SpeaksAtOnceAndThenEachTimeTheLengthDoubles) {
  StallReports soon;
  EXPECT_EQ(told(soon, 1), (std::vector<int>{1, 5, 10, 20, 40}));
  StallReports later;
  EXPECT_EQ(told(later, 7), (std::vector<int>{7, 10, 20, 40}));
}

TEST(StallReports, SpeaksOnceForTimesThatItMissed) {
  StallReports reports;
  EXPECT_EQ(reports.update(stall_of(minutes(30))).speech, Speech::finding);
  EXPECT_EQ(told(reports, 31), std::vector<int>{40});
}

TEST(StallReports, SaysOnceThatThereIsProgressAgain) {
  StallReports reports;
  EXPECT_EQ(reports.update({}).speech, Speech::nothing);
  reports.update(stall_of(minutes(1)));
  reports.update(stall_of(minutes(3)));
  const auto decision = reports.update({});
  EXPECT_EQ(decision.speech, Speech::progress);
  EXPECT_EQ(decision.length, minutes(3));
  EXPECT_EQ(reports.update({}).speech, Speech::nothing);
}

TEST(StallReports, KeepsSilentAboutAPauseLikeAnEarlierOne) {
  StallReports reports;
  reports.update(stall_of(minutes(1)));
  reports.update({});
  EXPECT_EQ(reports.update(stall_of(minutes(4))).speech, Speech::nothing);
  EXPECT_EQ(reports.update({}).speech, Speech::nothing);
  EXPECT_EQ(reports.update(stall_of(minutes(5))).speech, Speech::finding);
}

TEST(StallReports, DoesNotTakeTheEndForProgress) {
  StallReports reports;
  reports.update(stall_of(minutes(1)));
  Finding end;
  end.kind = FindingKind::over;
  EXPECT_EQ(reports.update(end).speech, Speech::nothing);
}

}  // namespace
}  // namespace ddp::watch
