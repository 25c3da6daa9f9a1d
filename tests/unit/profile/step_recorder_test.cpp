// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/step_recorder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>
#include <utility>

#include "ddp_runtime/profile/chrome_trace.h"

namespace ddp::profile {
namespace {

using namespace std::chrono_literals;

StepRecord step(double total, double forward, double hidden = 0, double communication = 0) {
  StepRecord record;
  record.time.end = record.time.begin + std::chrono::duration_cast<Clock::duration>(
                                            std::chrono::duration<double>(total));
  record.seconds[static_cast<std::size_t>(Phase::forward)] = forward;
  record.hidden_seconds = hidden;
  record.communication_seconds = communication;
  return record;
}

TEST(Percentile, IsTheNearestRank) {
  const std::vector<double> values{5, 1, 4, 2, 3};
  EXPECT_EQ(percentile(values, 0.5), 3);
  EXPECT_EQ(percentile(values, 0.95), 5);
  EXPECT_EQ(percentile(values, 0), 1);
  EXPECT_EQ(percentile(values, 1), 5);
  EXPECT_EQ(percentile({}, 0.5), 0);
}

TEST(Summarize, LeavesOutTheWarmUpButNeverMoreThanHalf) {
  const std::vector<StepRecord> steps{step(100, 90), step(2, 1), step(4, 1)};
  const auto summary = summarize(steps, 1);
  EXPECT_EQ(summary.steps, 2U);
  EXPECT_DOUBLE_EQ(summary.mean, 3);
  EXPECT_EQ(summarize(steps, 5).steps, 2U);
  EXPECT_EQ(summarize({}, 5).steps, 0U);
}

TEST(Summarize, PhasesAndOtherSumToTheMean) {
  const auto summary = summarize({step(2, 0.5), step(4, 1.5)}, 0);
  const double phases =
      std::accumulate(summary.phase_means.begin(), summary.phase_means.end(), 0.0);
  EXPECT_DOUBLE_EQ(phases + summary.other_mean, summary.mean);
  EXPECT_DOUBLE_EQ(summary.other_mean, 2);
}

TEST(StepRecorder, StepsFollowEachOtherWithoutAGapUnlessPaused) {
  StepRecorder recorder;
  recorder.begin_step();
  recorder.end_step();
  std::this_thread::sleep_for(2ms);
  recorder.begin_step();
  recorder.end_step();
  EXPECT_EQ(recorder.steps()[1].time.begin, recorder.steps()[0].time.end);
  recorder.pause();
  std::this_thread::sleep_for(2ms);
  recorder.begin_step();
  recorder.end_step();
  EXPECT_GT(recorder.steps()[2].time.begin, recorder.steps()[1].time.end);
}

TEST(StepRecorder, PhasesAddUpAndLateCostsBelongToTheLastStep) {
  StepRecorder recorder;
  recorder.begin_step();
  const auto now = Clock::now();
  recorder.add(Phase::data, {now, now + 1s});
  recorder.add(Phase::data, {now, now + 2s});
  recorder.end_step();
  const double before = recorder.steps()[0].total();
  recorder.add_to_last_step(Phase::checkpoint, {now, now + 4s});
  const auto& record = recorder.steps()[0];
  EXPECT_DOUBLE_EQ(record.seconds[static_cast<std::size_t>(Phase::data)], 3);
  EXPECT_DOUBLE_EQ(record.seconds[static_cast<std::size_t>(Phase::checkpoint)], 4);
  EXPECT_DOUBLE_EQ(record.total(), before + 4);
}

TEST(StepRecorder, CommunicationDuringBackwardIsHidden) {
  StepRecorder recorder;
  recorder.begin_step();
  const auto t = Clock::now();
  recorder.add_communication({{"a", 10, {t + 1s, t + 3s}}, {"b", 30, {t + 3s, t + 6s}}},
                             {t, t + 4s});
  recorder.end_step();
  const auto summary = summarize(recorder.steps(), 0);
  EXPECT_DOUBLE_EQ(summary.communication_bytes, 40);
  EXPECT_DOUBLE_EQ(summary.communication_seconds, 5);
  EXPECT_DOUBLE_EQ(summary.hidden_seconds, 3);
}

// The update of bucket "a", from 5 s to 6 s, hides a part of bucket "b".
TEST(StepRecorder, CommunicationDuringAnUpdateIsHidden) {
  StepRecorder recorder;
  recorder.begin_step();
  const auto t = Clock::now();
  const std::vector<Interval> waits{{t + 4s, t + 5s}, {t + 6s, t + 8s}};
  const std::vector<Interval> updates{{t + 5s, t + 6s}, {t + 8s, t + 9s}};
  recorder.add_communication({{"a", 10, {t + 1s, t + 5s}}, {"b", 30, {t + 5s, t + 8s}}},
                             {t, t + 4s}, updates);
  recorder.add(Phase::exposed_comm, waits);
  recorder.add(Phase::optimizer, updates);
  recorder.end_step();
  EXPECT_DOUBLE_EQ(recorder.steps().back().hidden_seconds, 3 + 1);
  EXPECT_DOUBLE_EQ(recorder.steps().back().communication_seconds, 7);
  const auto& seconds = recorder.steps().back().seconds;
  EXPECT_DOUBLE_EQ(seconds[static_cast<std::size_t>(Phase::exposed_comm)], 3);
  EXPECT_DOUBLE_EQ(seconds[static_cast<std::size_t>(Phase::optimizer)], 2);
}

TEST(StepRecorder, LongRunDropsItsOldestSteps) {
  StepRecorder recorder;
  std::size_t most = 0;
  for (int i = 0; i < 20000; ++i) {
    recorder.begin_step();
    recorder.end_step();
    most = std::max(most, recorder.steps().size());
  }
  EXPECT_LE(most, 4096U);
  EXPECT_GE(recorder.steps().size(), 2048U);
}

// Completes the steps that a test tells it to.
struct ScriptedTimer final : DeviceTimer {
  void begin_step(bool after_pause) override { pauses.push_back(after_pause); }
  void end(Phase phase) noexcept override { ended.push_back(phase); }
  void end_step() override { ++steps; }
  std::vector<DeviceStep> take_completed() override { return std::exchange(completed, {}); }

  std::vector<bool> pauses;
  std::vector<Phase> ended;
  int steps = 0;
  std::vector<DeviceStep> completed;
};

class StepsOfADevice : public testing::Test {
 protected:
  StepsOfADevice() { recorder_.time_on(&timer_); }

  void step() {
    recorder_.begin_step();
    { const auto span = recorder_.measure(Phase::forward); }
    recorder_.end_step();
  }
  double seconds(std::size_t step, Phase phase) const {
    return recorder_.steps()[step].seconds[static_cast<std::size_t>(phase)];
  }

  static constexpr Clock::time_point kTime{1000s};
  // Two buckets on the wire from 2 s to 8 s, and 2 s of that exposed.
  const DeviceStep ran_{{kTime, kTime + 10s},
                        {{Phase::forward, {kTime + 1s, kTime + 3s}},
                         {Phase::backward, {kTime + 3s, kTime + 6s}},
                         {Phase::exposed_comm, {kTime + 6s, kTime + 8s}}},
                        {{"a", 10, {kTime + 2s, kTime + 5s}}, {"b", 30, {kTime + 5s, kTime + 8s}}}};
  ScriptedTimer timer_;
  StepRecorder recorder_;
};

TEST_F(StepsOfADevice, TimerSeesStepsPausesAndPhases) {
  step();
  step();
  recorder_.pause();
  step();
  EXPECT_EQ(timer_.pauses, (std::vector{true, false, true}));
  EXPECT_EQ(timer_.ended, (std::vector{Phase::forward, Phase::forward, Phase::forward}));
  EXPECT_EQ(timer_.steps, 3);
  recorder_.time_on(nullptr);
  step();
  EXPECT_EQ(timer_.steps, 3);
  EXPECT_FALSE(recorder_.steps().back().pending);
}

TEST_F(StepsOfADevice, TimesOfTheDeviceReplaceThoseOfTheProgram) {
  step();
  step();
  EXPECT_TRUE(recorder_.steps()[0].pending);
  timer_.completed = {ran_};
  step();
  const auto& record = recorder_.steps()[0];
  EXPECT_FALSE(record.pending);
  EXPECT_TRUE(recorder_.steps()[1].pending);
  EXPECT_DOUBLE_EQ(record.total(), 10);
  EXPECT_DOUBLE_EQ(seconds(0, Phase::forward), 2);
  EXPECT_DOUBLE_EQ(seconds(0, Phase::backward), 3);
  EXPECT_DOUBLE_EQ(record.other(), 3);
  EXPECT_EQ(record.communication_bytes, 40U);
  EXPECT_DOUBLE_EQ(record.communication_seconds, 6);
  EXPECT_DOUBLE_EQ(record.hidden_seconds, 4);
  const auto events = recorder_.recent_events();
  ASSERT_EQ(events.size(), 5U + 1 + 1);
  EXPECT_EQ(events[0].time.begin, kTime + 1s);
  EXPECT_TRUE(events[3].communication);
}

TEST_F(StepsOfADevice, CheckpointAfterAStepStaysInIt) {
  step();
  recorder_.add_to_last_step(Phase::checkpoint, {kTime, kTime + 4s});
  timer_.completed = {ran_};
  recorder_.collect();
  EXPECT_DOUBLE_EQ(seconds(0, Phase::checkpoint), 4);
  EXPECT_DOUBLE_EQ(recorder_.steps()[0].total(), 14);
}

TEST_F(StepsOfADevice, NextStepFollowsTheProgramsClock) {
  timer_.completed = {ran_};
  step();
  step();
  EXPECT_GT(recorder_.steps()[1].time.begin, kTime + 10s);
  EXPECT_LT(recorder_.steps()[1].total(), 3600);
}

TEST_F(StepsOfADevice, SlowDeviceCompletesStepsInOrder) {
  for (int i = 0; i < 30; ++i) step();
  for (int i = 0; i < 29; ++i) timer_.completed.push_back(ran_);
  timer_.completed[28].time.end += 1s;
  recorder_.collect();
  EXPECT_DOUBLE_EQ(recorder_.steps()[27].total(), 10);
  EXPECT_DOUBLE_EQ(recorder_.steps()[28].total(), 11);
  EXPECT_TRUE(recorder_.steps()[29].pending);
  EXPECT_EQ(recorder_.recent_events().size(), 19U * 5 + 1) << "of 20 steps";
}

TEST(ChromeTrace, IsJsonWithSeparateComputeAndCommunication) {
  StepRecorder recorder;
  for (int i = 0; i < 30; ++i) {
    recorder.begin_step();
    const auto t = Clock::now();
    recorder.add(Phase::forward, {t, t + 1ms});
    recorder.add_communication({{"bucket \"0\"", 8, {t, t + 2ms}}}, {t, t + 2ms});
    recorder.end_step();
  }
  const auto trace = nlohmann::json::parse(chrome_trace(recorder.recent_events(), 3));
  int events = 0;
  for (const auto& event : trace.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 3);
    if (event.at("ph") != "X") continue;
    ++events;
    EXPECT_GE(event.at("ts").get<double>(), 0);
    EXPECT_EQ(event.at("tid"), event.at("name") == "forward" ? 0 : 1);
  }
  EXPECT_EQ(events, 40) << "each of the last 20 steps has two events";
}

}  // namespace
}  // namespace ddp::profile
