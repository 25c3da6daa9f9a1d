// SPDX-License-Identifier: Apache-2.0
// Splits collectives into waiting and transfer, with values computed by hand.
#include "ddp_runtime/profile/collective_times.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ddp::profile {
namespace {

Clock::time_point at(double seconds) {
  return Clock::time_point{} +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

Interval measured(double begin, double end) {
  return {at(begin), at(end)};
}

// Backward lasts until 3 s. The first bucket is sent during backward, after a wait; the second one
// is sent after backward.
TEST(SplitWaiting, TimeBeyondTheShortestDurationIsWaiting) {
  const StepCollectives step{{measured(1, 3), measured(3, 7)}, {measured(3, 7)}};
  const std::vector<float> least{0.5F, 1};
  const WaitSplit split = split_waiting(step, least);
  EXPECT_NEAR(split.wire, 1.5, 1e-6);
  EXPECT_NEAR(split.waiting, 1.5 + 3, 1e-6);
  EXPECT_NEAR(split.exposed_waiting, 3, 1e-6);
}

TEST(SplitWaiting, TheLastRankDoesNotWait) {
  const StepCollectives step{{measured(0, 2)}, {measured(0, 2)}};
  const std::vector<float> least{2};
  const WaitSplit split = split_waiting(step, least);
  EXPECT_EQ(split.waiting, 0);
  EXPECT_EQ(split.exposed_waiting, 0);
  EXPECT_NEAR(split.wire, 2, 1e-6);
}

TEST(SplitWaiting, WaitingDuringBackwardIsNotExposed) {
  const StepCollectives step{{measured(0, 4)}, {measured(2, 4)}};
  const std::vector<float> least{1};
  EXPECT_NEAR(split_waiting(step, least).exposed_waiting, 1, 1e-6);
}

// The update of a bucket, from 3 s to 5 s, hides a part of the wait for the next one.
TEST(SplitWaiting, WaitingDuringAnUpdateIsNotExposed) {
  const StepCollectives step{{measured(0, 2), measured(2, 8)}, {measured(1, 3), measured(5, 8)}};
  const std::vector<float> least{2, 2};
  EXPECT_NEAR(split_waiting(step, least).exposed_waiting, 1 + 1, 1e-6);
}

TEST(SplitWaiting, ImpossibleTimesGiveNoNegativeValues) {
  const StepCollectives backwards{{measured(4, 1)}, {measured(0, 9)}};
  const std::vector<float> least{-1};
  EXPECT_EQ(split_waiting(backwards, least).waiting, 0);
  const StepCollectives more{{measured(0, 1), measured(1, 2)}, {measured(0, 2)}};
  const std::vector<float> longer{7};
  EXPECT_EQ(split_waiting(more, longer).waiting, 0)
      << "one time is longer than the collective, and one is missing";
  EXPECT_NEAR(split_waiting(more, longer).wire, 1, 1e-6);
}

TEST(CollectivesOf, BelongToTheStepInOrder) {
  using namespace std::chrono_literals;
  StepRecorder recorder;
  EXPECT_TRUE(collectives_of(recorder, 1).times.empty());
  Clock::time_point t;
  Clock::time_point first;
  for (int i = 0; i < 2; ++i) {
    recorder.begin_step();
    t = Clock::now();
    if (i == 0) first = t;
    recorder.add(Phase::exposed_comm, {t, t});  // a micro-batch without communication
    recorder.add(Phase::exposed_comm, {t + 4us, t + 6us});
    recorder.add_communication({{"a", 10, {t + 1us, t + 2us}}, {"b", 10, {t + 2us, t + 6us}}},
                               {t, t + 4us});
    std::this_thread::sleep_until(t + 6us);
    recorder.end_step();
  }
  const auto last = collectives_of(recorder, 1);
  ASSERT_EQ(last.times.size(), 2U);
  EXPECT_EQ(last.times[0].begin, t + 1us);
  EXPECT_EQ(last.times[1].begin, t + 2us);
  ASSERT_EQ(last.exposed.size(), 2U);
  EXPECT_EQ(last.exposed[0].begin, t);
  EXPECT_EQ(last.exposed[1].begin, t + 4us);
  ASSERT_EQ(collectives_of(recorder, 2).times.size(), 2U);
  EXPECT_EQ(collectives_of(recorder, 2).times[0].begin, first + 1us);
  EXPECT_TRUE(collectives_of(recorder, 3).times.empty());
  EXPECT_TRUE(collectives_of(recorder, 0).times.empty());
}

// What the program noted of a step is not what its device did.
TEST(CollectivesOf, AreNotThoseOfTheProgramWhileADeviceIsBehind) {
  struct SilentDevice final : DeviceTimer {
    void begin_step(bool) override {}
    void end(Phase) noexcept override {}
    void end_step() override {}
    std::vector<DeviceStep> take_completed() override { return {}; }
  } device;
  StepRecorder recorder;
  recorder.time_on(&device);
  recorder.begin_step();
  const auto t = Clock::now();
  recorder.add_communication({{"a", 10, {t, t}}}, {t, t});
  recorder.end_step();
  EXPECT_TRUE(collectives_of(recorder, 1).times.empty());
}

TEST(WaitTotals, CountTheStepsInWhichOthersWaitedLonger) {
  WaitTotals totals;
  totals.add({1, 0.5, 2}, 3);
  totals.add({4, 1, 2}, 3);
  totals.add({3, 1, 2}, 3);
  EXPECT_EQ(totals.steps, 3U);
  EXPECT_EQ(totals.late_steps, 1U);
  EXPECT_DOUBLE_EQ(totals.exposed_waiting, 2.5);
  EXPECT_DOUBLE_EQ(totals.wire, 6);
}

}  // namespace
}  // namespace ddp::profile
