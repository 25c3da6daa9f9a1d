// SPDX-License-Identifier: Apache-2.0
// Where the time of synthetic runs went.
#include "ddp_runtime/elastic/accounting/account.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/elastic/accounting/resilience.h"
#include "tests/unit/elastic/synthetic_log.h"

namespace ddp::elastic {
namespace {

using test::expect_sums;
using test::kSecond;
using test::Log;
using test::seconds_by_use;
using Table = std::map<std::string, double>;

TEST(Account, OfARunWithoutFaults) {
  RunAccount run;
  Log(run, "a")
      .begin()
      .start(1, 1)
      .event(2, "rank_ready", R"("generation": 1, "rank": 0)")
      .event(5, "restoring", R"("generation": 1)")
      .training(9, 1, 0)
      .progress(20, 1, 10, 10, 0.5, 1)
      .kept(21, 1, 10)
      .progress(30, 1, 20, 19, 0.5, 1)
      .finished(32, 1);
  const auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(account.wall(), 32 * kSecond);
  EXPECT_EQ(seconds_by_use(account), (Table{{"waiting", 1},
                                            {"launch", 4},
                                            {"load", 4},
                                            {"productive", 19},
                                            {"checkpoint_stall", 0.5},
                                            {"other", 3.5}}));
  EXPECT_EQ(account.faults(), 0);
  EXPECT_EQ(account.steps(), 20);
  EXPECT_DOUBLE_EQ(*ettr_of(account), 19.0 / 32);
}

TEST(Account, OfAKilledRank) {
  RunAccount run;
  Log log(run, "a");
  log.begin()
      .start(0, 1)
      .training(2, 1, 0)
      .progress(12, 1, 10, 10)
      .kept(12, 1, 8)
      .progress(14, 1, 12, 12);
  // The step that was being made, and what is told late, are 1.3 s; the rest is unnoticed.
  log.killed(17, 1)
      .action(17.5, "stop", R"("generation": 1, "save": false)")
      .event(17.5, "failed", R"("generation": 1, "why": "n0: rank 0: signal 9", "blamed": ["n0"])")
      .gone(18, 1)
      .start(19, 2)
      .training(22, 2, 8)
      .progress(34, 2, 20, 12)
      .finished(34, 2);
  const auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(seconds_by_use(account), (Table{{"launch", 2 + 3},
                                            {"productive", 8 + 12},
                                            {"repeat", 4 + 1.3},
                                            {"detect", 1.7},
                                            {"stop", 1},
                                            {"waiting", 1}}));
  EXPECT_EQ(account.faults(), 1);
  EXPECT_EQ(account.steps_repeated(), 4);
  const auto& first = account.generations()[0];
  EXPECT_TRUE(first.failed);
  EXPECT_EQ(first.why_ended, "n0: rank 0: signal 9");
  EXPECT_EQ(first.blamed, std::vector<std::string>{"n0"});
  EXPECT_EQ(first.detected_after, 3 * kSecond);
  EXPECT_EQ(first.recovered_after, 5 * kSecond);
  EXPECT_EQ(first.uses[Use::repeat], 5'300'000);
  const auto& second = account.generations()[1];
  EXPECT_EQ(second.from_step, 8);
  EXPECT_EQ(second.to_step, 20);
  EXPECT_EQ(second.steps_repeated, 4);
  EXPECT_EQ(second.restored_from, "disk@8");
}

TEST(Account, StepsThatAreToldAfterTheFailureAreCounted) {
  RunAccount run;
  Log(run, "a")
      .trains_from(0)
      .progress(10, 1, 10, 10)
      .killed(12, 1, 1)
      .progress(12.2, 1, 11, 11)
      .gone(13, 1)
      .start(13, 2)
      .training(13, 2, 8)
      .progress(15, 2, 10, 2)
      .finished(15, 2);
  const auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(account.generations()[0].to_step, 11);
  EXPECT_EQ(account.steps_repeated(), 3);
}

TEST(Account, WhoseFailureItWasMayBeKnownWhenItHasEnded) {
  RunAccount run;
  Log(run, "a")
      .begin()
      .start(0, 1)
      .gone(1, 1)
      .event(1, "failed", R"("generation": 1, "why": "srun: exit code 1", "blamed": ["n0"])")
      .start(1, 2)
      .finish(2, 1);
  const auto account = run.account()->closed();
  EXPECT_EQ(account.generations()[0].why_ended, "srun: exit code 1");
  EXPECT_EQ(account.generations()[0].blamed, std::vector<std::string>{"n0"});
  EXPECT_EQ(account.generations()[1].why_ended, "");
}

TEST(Account, APieceIsDividedWhereThePartsOfItWereMade) {
  RunAccount run;
  Log(run, "a")
      .trains_from(0)
      .progress(10, 1, 10, 10)
      .progress(30, 1, 20, 30)
      .lost(30, 1)
      .start(30, 2)
      .training(30, 2, 15)
      .progress(35, 2, 20, 5)
      .finished(35, 2);
  const auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(seconds_by_use(account), (Table{{"productive", 25}, {"repeat", 10}}));
}

TEST(Account, WithFewerNodesAPartOfTheTimeIsLost) {
  RunAccount run;
  Log(run, "a")
      .begin(4, 2)
      .start(0, 1, 4)
      .training(0, 1, 0)
      .progress(10, 1, 10, 10)
      .lost(10, 1)
      .start(10, 2, 3)
      .training(10, 2, 10)
      .progress(30, 2, 20, 20)
      .finished(30, 2);
  auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(seconds_by_use(account), (Table{{"productive", 10 + 15}, {"degraded", 5}}));
  EXPECT_EQ(account.generations()[1].ranks, 6);
}

TEST(Account, StepsThatAreRepeatedAreNotDegraded) {
  RunAccount run;
  Log(run, "a")
      .begin(2)
      .start(0, 1, 1)
      .training(0, 1, 0)
      .progress(10, 1, 10, 10)
      .lost(10, 1)
      .start(10, 2, 2)
      .training(10, 2, 0)
      .progress(15, 2, 10, 5)
      .finished(15, 2);
  const auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(seconds_by_use(account), (Table{{"productive", 5}, {"repeat", 10}}));
}

TEST(Account, TheQueueIsBetweenTwoJobsAlsoIfTheFirstWasKilled) {
  RunAccount run;
  Log(run, "a", "7", 1000)
      .begin()
      .start(1, 1)
      .training(2, 1, 0)
      .progress(12, 1, 10, 10)
      .kept(12, 1, 10);
  Log(run, "b", "7", 1112)
      .begin()
      .start(1, 1)
      .training(3, 1, 10)
      .progress(13, 1, 20, 10)
      .finished(14, 1);
  const auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(account.wall(), 126 * kSecond);
  EXPECT_EQ(
      seconds_by_use(account),
      (Table{{"waiting", 2}, {"launch", 3}, {"productive", 20}, {"queue", 100}, {"other", 1}}));
  EXPECT_DOUBLE_EQ(*ettr_of(account), 20.0 / 26);
  EXPECT_EQ(account.jobs(), 2);
  EXPECT_EQ(account.faults(), 1);
  EXPECT_EQ(account.generations()[0].why_ended, "the job ended without a word of ddp-run");
  EXPECT_EQ(account.generations()[0].recovered_after, 103 * kSecond);
}

TEST(Account, ARunThatIsRequeuedThreeTimesIsOneRun) {
  RunAccount run;
  for (int job = 0; job < 4; ++job) {
    Log(run, fmt::format("r{}", job), "7", 1000 + 60 * job)
        .begin()
        .start(0, 1)
        .training(1, 1, 10 * job)
        .progress(11, 1, 10 * job + 10, 10)
        .kept(11, 1, 10 * job + 10)
        .event(11, "signaled", R"("signal": 10)")
        .gone(12, 1)
        .finish(12, 75);
    const auto account = run.account()->closed();
    expect_sums(account);
    EXPECT_EQ(account.jobs(), job + 1);
    EXPECT_EQ(account.uses()[Use::queue], job * 48 * kSecond);
    EXPECT_EQ(account.uses()[Use::productive], (job + 1) * 10 * kSecond);
    EXPECT_EQ(account.uses()[Use::stop], (job + 1) * kSecond);
    EXPECT_EQ(account.faults(), 0);
  }
}

TEST(Account, AClockThatJumpsChangesOnlyTheQueue) {
  RunAccount run;
  Log(run, "a", "7", 5000)
      .begin()
      .start(0, 1)
      .training(1, 1, 0)
      .progress(11, 1, 10, 10)
      .event(11, "signaled", R"("signal": 10)")
      .gone(11, 1)
      .finish(11, 75);
  // A day earlier.
  Log(run, "b", "7", 5000 - 86400)
      .begin()
      .start(0, 1)
      .training(1, 1, 10)
      .progress(11, 1, 20, 10)
      .finished(11, 1);
  const auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(seconds_by_use(account), (Table{{"launch", 2}, {"productive", 20}}));
}

TEST(Account, WhatIsNotKeptIsLostIfTheRunEndsThere) {
  RunAccount run;
  Log log(run, "a", "7", 1000);
  log.trains_from(0)
      .progress(10, 1, 10, 10)
      .kept(10, 1, 10)
      .progress(16, 1, 16, 16)
      .event(16, "signaled", R"("signal": 10)")
      .gone(16, 1)
      .finish(16, 75);
  auto account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(seconds_by_use(account), (Table{{"productive", 10}, {"repeat", 6}}));
  EXPECT_EQ(account.steps(), 10);
  // The next job has it all the same.
  Log(run, "b", "7", 1016).trains_from(16).progress(4, 1, 20, 4).finished(4, 1);
  account = run.account()->closed();
  expect_sums(account);
  EXPECT_EQ(seconds_by_use(account), (Table{{"productive", 20}}));
}

TEST(Account, WhatAProgramDoesNotTellIsNotGuessed) {
  // Steps only, at irregular times.
  RunAccount steps;
  Log(steps, "a")
      .begin()
      .start(0, 1)
      .event(3, "progress", R"("generation": 1, "step": 1)")
      .event(5, "progress", R"("generation": 1, "step": 3)")
      .lost(7, 1)
      .start(7, 2)
      .event(9, "progress", R"("generation": 2, "step": 3)")
      .event(12, "progress", R"("generation": 2, "step": 6)")
      .finished(12, 2);
  auto account = steps.account()->closed();
  expect_sums(account);
  // One step took 2 s / 3 = 0.667 s, as the first progress is one that took no time.
  EXPECT_EQ(account.uses()[Use::launch], 5 * kSecond);
  EXPECT_EQ(account.uses()[Use::detect] + account.uses()[Use::repeat],
            2 * kSecond + account.generations()[1].steps_repeated * kSecond);
  EXPECT_EQ(account.steps(), 6);
  EXPECT_FALSE(resilience_sentence(account).empty());
  // Nothing at all.
  RunAccount silent;
  Log(silent, "a")
      .begin()
      .start(1, 1)
      .event(2, "rank_ready", R"("generation": 1, "rank": 0)")
      .finished(9, 1);
  account = silent.account()->closed();
  expect_sums(account);
  EXPECT_EQ(seconds_by_use(account), (Table{{"waiting", 1}, {"launch", 1}, {"other", 7}}));
  EXPECT_EQ(ettr_of(account), std::nullopt);
  EXPECT_EQ(resilience_sentence(account), "");
}

TEST(Account, LostLinesLoseNothing) {
  RunAccount all;
  RunAccount few;
  for (auto* run : {&all, &few}) {
    Log log(*run, "a");
    log.begin().start(0, 1).training(1, 1, 0);
    for (int step = 1; step < 100; ++step) {
      if (run == &all) log.progress(1 + step, 1, step, 0.75 * step, 0.25 * (step / 10), step / 10);
    }
    log.progress(101, 1, 100, 75, 2.5, 10).finished(101, 1);
    expect_sums(run->account()->closed());
  }
  EXPECT_EQ(all.account()->uses(), few.account()->uses());
  EXPECT_EQ(all.account()->uses()[Use::checkpoint_stall], 2'500'000);
  EXPECT_EQ(few.account()->saves(), 10);
}

TEST(Account, YoungsIntervalIsBesideTheOneInUse) {
  RunAccount run;
  Log(run, "a")
      .trains_from(0)
      .progress(100, 1, 80, 80, 20, 10)
      .kept(100, 1, 80)
      .lost(100, 1)
      .start(100, 2)
      .training(100, 2, 80)
      .progress(200, 2, 160, 80, 20, 10)
      .finished(200, 2);
  const auto resilience = resilience_of(run.account()->closed());
  const auto& checkpoints = resilience.at("checkpoints");
  EXPECT_EQ(checkpoints.at("saves"), 20);
  EXPECT_EQ(checkpoints.at("mean_stall_seconds"), 2.0);
  EXPECT_EQ(checkpoints.at("interval_seconds"), 10.0);
  EXPECT_EQ(resilience.at("mtti_seconds"), 200.0);
  EXPECT_DOUBLE_EQ(checkpoints.at("young_interval_seconds").get<double>(),
                   std::sqrt(2 * 2 * 200.0));
}

// A copy in memory is lost with the job.
TEST(Account, OnlyStepsOnADiskOutliveAJobThatHasFailed) {
  RunAccount run;
  Log log(run, "a");
  log.trains_from(0)
      .progress(10, 1, 10, 10)
      .kept(10, 1, 6)
      .event(10, "kept", R"("generation": 1, "step": 9, "tier": "memory")")
      .lost(10, 1)
      .finish(10, 1);
  EXPECT_EQ(run.account()->closed().steps(), 6);
}

// Ten steps, a failure, and what follows.
Account failed_after_ten_steps(const std::string& before, const std::string& kept,
                               const std::function<void(Log&)>& then) {
  RunAccount run;
  Log log(run, "a");
  log.begin().start(0, 1);
  if (!before.empty()) log.event(0, before, R"("generation": 1)");
  log.training(0, 1, 0).progress(10, 1, 10, 10);
  if (!kept.empty()) log.event(10, "kept", kept);
  log.lost(10, 1);
  then(log);
  const auto account = run.account()->closed();
  expect_sums(account);
  return account;
}

TEST(Account, StepsOfAFailedJobThatHasKeptNoneAreLostIfItTellsWhatItKeeps) {
  const auto fail = [](Log& log) { log.finish(10, 1); };
  const auto* in_memory = R"("generation": 1, "step": 9, "tier": "memory")";
  for (const auto& [before, kept] : std::vector<std::pair<std::string, std::string>>{
           {"restoring", ""}, {"", in_memory}, {"restoring", in_memory}}) {
    const auto lost = failed_after_ten_steps(before, kept, fail);
    EXPECT_EQ(lost.steps(), 0);
    EXPECT_EQ(seconds_by_use(lost), (Table{{"repeat", 10}}));
  }
  const auto unknown = failed_after_ten_steps("", "", fail);
  EXPECT_EQ(unknown.steps(), 10);
  EXPECT_EQ(seconds_by_use(unknown), (Table{{"productive", 10}}));
}

TEST(Account, StepsThatTheLastStartHasSavedAreKept) {
  const auto* in_memory = R"("generation": 1, "step": 8, "tier": "memory")";
  const auto saved = failed_after_ten_steps("", in_memory, [](Log& log) {
    log.action(11, "start",
               R"("generation": 2, "nodes": ["n0"], "restore": "memory@8", "save": true)")
        .event(12, "rank_ready", R"("generation": 2, "rank": 0)")
        .event(13, "restoring", R"("generation": 2)")
        .kept(16, 2, 8)
        .event(16, "rank_ended", R"("generation": 2, "rank": 0, "code": 75)")
        .action(16, "stop", R"("generation": 2, "save": true)")
        .gone(17, 2)
        .finish(17, 1);
  });
  EXPECT_EQ(saved.steps(), 8);
  EXPECT_EQ(saved.faults(), 1);
  EXPECT_EQ(seconds_by_use(saved), (Table{{"productive", 8},
                                          {"repeat", 2},
                                          {"waiting", 1},
                                          {"launch", 2},
                                          {"load", 3},
                                          {"stop", 1}}));
}

// A program that dies has not told its last steps.
TEST(Account, AStateShowsThatItsStepsWereMade) {
  const auto* in_memory = R"("generation": 1, "step": 8, "tier": "memory")";
  const auto saved = failed_after_ten_steps("", in_memory, [](Log& log) {
    log.action(11, "start", R"("generation": 2, "nodes": ["n0"], "save": true)")
        .kept(16, 2, 12)
        .gone(17, 2)
        .finish(17, 1);
  });
  EXPECT_EQ(saved.steps(), 12);
}

}  // namespace
}  // namespace ddp::elastic
