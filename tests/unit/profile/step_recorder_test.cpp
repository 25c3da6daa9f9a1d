// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/profile/step_recorder.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <thread>

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
