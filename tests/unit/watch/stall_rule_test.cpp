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
  EXPECT_EQ(found({quiet(60), quiet(59)}).kind, FindingKind::unknown);
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
  EXPECT_EQ(found({kBusy, stopped(60)}).kind, FindingKind::unknown) << "one rank is not working";
  EXPECT_EQ(found({quiet(60), kBusy, stopped(59)}).kind, FindingKind::unknown);
  EXPECT_EQ(found({quiet(60), kBusy, stopped(1)}).kind, FindingKind::none);
  const Finding finding = found({quiet(60), kBusy, stopped(70)});
  EXPECT_EQ(finding.kind, FindingKind::stopped);
  EXPECT_EQ(finding.length, seconds(70));
  EXPECT_EQ(finding.stopped, Ranks{2});
  EXPECT_EQ(found({quiet(60), stopped(59)}).kind, FindingKind::unknown);
  EXPECT_EQ(found({quiet(80), stopped(61)}).kind, FindingKind::stopped);
  RankReport late = quiet(70);
  late.stopped = seconds(31);
  EXPECT_EQ(found({quiet(80), late}).kind, FindingKind::stopped);
  EXPECT_EQ(found({quiet(80), late}).length, seconds(31)) << "how long it was stopped";
}

TEST(StallRule, NamesAStoppedRankThatIsAlone) {
  RankReport report = stopped(60);
  report.quiet.reset();  // a helper of it still runs
  EXPECT_EQ(found({kFinished, report}).kind, FindingKind::unknown);
  report.is_alone = true;
  EXPECT_EQ(found({kFinished, report}).kind, FindingKind::stopped);
  EXPECT_EQ(found({kBusy, report}).kind, FindingKind::stopped) << "busy on another node";
}

TEST(StallRule, AStallBeginsWhenTheLastRankHasEnded) {
  RankReport ended = kFinished;
  ended.quiet = seconds(59);
  EXPECT_EQ(found({quiet(600), ended}).kind, FindingKind::unknown);
  ended.quiet = seconds(61);
  EXPECT_EQ(found({quiet(600), ended}).kind, FindingKind::stalled);
  EXPECT_EQ(found({quiet(600), ended}).length, seconds(61));
}

TEST(StallRule, KnowsWhenNoRankRuns) {
  EXPECT_EQ(found({kFinished, kFailed}).kind, FindingKind::over);
}

TEST(StallRule, WaitsForASecondAtLeast) {
  EXPECT_NE(found({quiet(0)}, 0).kind, FindingKind::stalled);
  EXPECT_EQ(found({quiet(1)}, 0).kind, FindingKind::stalled);
}

Finding stall_of(Clock::duration length) {
  return {FindingKind::stalled, length, {}, {}, {}, {}};
}

// The reports of one step, with a clock.
class Reports {
 public:
  StallReports::Decision after(int seconds_later, const Finding& finding) {
    now_ += seconds(seconds_later);
    return reports_.update(finding, now_);
  }
  Speech stall(Clock::duration length) { return after(1, stall_of(length)).speech; }
  Speech progress_for(int length) {
    after(1, {});
    return after(length, {}).speech;
  }
  // The minutes at which a stall is told that is found after `first` minutes and lasts 41.
  std::vector<int> told(int first) {
    std::vector<int> all;
    for (int i = first; i <= 41; ++i) {
      if (stall(minutes(i)) == Speech::finding) all.push_back(i);
    }
    return all;
  }

 private:
  StallReports reports_;
  Clock::time_point now_;
};

TEST(StallReports, SpeaksAtOnceAndThenEachTimeTheLengthDoubles) {
  EXPECT_EQ(Reports().told(1), (std::vector<int>{1, 5, 10, 20, 40}));
  EXPECT_EQ(Reports().told(7), (std::vector<int>{7, 10, 20, 40}));
}

TEST(StallReports, SpeaksOnceForTimesThatItMissed) {
  Reports reports;
  EXPECT_EQ(reports.stall(minutes(30)), Speech::finding);
  EXPECT_EQ(reports.told(31), std::vector<int>{40});
}

TEST(StallReports, SaysOnceThatThereIsProgressAgain) {
  Reports reports;
  EXPECT_EQ(reports.progress_for(10), Speech::nothing);
  reports.stall(minutes(1));
  reports.stall(minutes(3));
  EXPECT_EQ(reports.progress_for(4), Speech::nothing) << "it may be for a moment";
  const auto decision = reports.after(1, {});
  EXPECT_EQ(decision.speech, Speech::progress);
  EXPECT_EQ(decision.length, minutes(3));
  EXPECT_EQ(reports.progress_for(10), Speech::nothing);
}

TEST(StallReports, KeepsSilentAboutAPauseLikeAnEarlierOne) {
  Reports reports;
  reports.stall(minutes(1));
  reports.progress_for(590);
  EXPECT_EQ(reports.stall(minutes(4)), Speech::nothing);
  EXPECT_EQ(reports.progress_for(10), Speech::nothing);
  EXPECT_EQ(reports.stall(minutes(5)), Speech::finding);
  reports.progress_for(600);
  EXPECT_EQ(reports.stall(minutes(1)), Speech::finding) << "that is another stall";
}

TEST(StallReports, DoesNotTakeTheEndOrWhatIsUnknownForProgress) {
  for (const FindingKind kind : {FindingKind::over, FindingKind::unknown}) {
    Reports reports;
    reports.stall(minutes(1));
    Finding finding;
    finding.kind = kind;
    EXPECT_EQ(reports.after(1, finding).speech, Speech::nothing);
    EXPECT_EQ(reports.after(60, finding).speech, Speech::nothing);
    EXPECT_EQ(reports.stall(minutes(3)), Speech::nothing) << "it is the same stall";
  }
}

}  // namespace
}  // namespace ddp::watch
