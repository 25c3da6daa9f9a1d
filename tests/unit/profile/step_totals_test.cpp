// SPDX-License-Identifier: Apache-2.0
// Totals in constant memory, compared with the summary of all steps.
#include "ddp_runtime/profile/step_totals.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ddp::profile {
namespace {

constexpr std::size_t kWarmup = 5;

StepRecord step_of(double seconds) {
  StepRecord record;
  record.time.end = record.time.begin + std::chrono::duration_cast<Clock::duration>(
                                            std::chrono::duration<double>(seconds));
  record.seconds[static_cast<std::size_t>(Phase::forward)] = seconds / 4;
  record.late[0] = seconds / 10;
  record.communication_bytes = 1000;
  record.communication_seconds = seconds / 3;
  record.hidden_seconds = seconds / 6;
  return record;
}

void expect_same(const StepSummary& a, const StepSummary& b) {
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_DOUBLE_EQ(a.p50, b.p50);
  EXPECT_DOUBLE_EQ(a.p95, b.p95);
  EXPECT_NEAR(a.mean, b.mean, 1e-12);
  EXPECT_NEAR(a.other_mean, b.other_mean, 1e-12);
  for (std::size_t p = 0; p < kPhases; ++p) EXPECT_NEAR(a.phase_means[p], b.phase_means[p], 1e-12);
  EXPECT_EQ(a.communication_bytes, b.communication_bytes);
  EXPECT_NEAR(a.communication_seconds, b.communication_seconds, 1e-12);
  EXPECT_NEAR(a.hidden_seconds, b.hidden_seconds, 1e-12);
}

TEST(StepTotals, MatchTheSummaryForAnyNumberOfSteps) {
  std::mt19937 random(1);
  std::lognormal_distribution<double> seconds(-5, 1);
  StepTotals totals(kWarmup);
  std::vector<StepRecord> all;
  expect_same(totals.summary(), summarize(all, kWarmup));
  for (int i = 0; i < 300; ++i) {
    all.push_back(step_of(seconds(random)));
    totals.add(all.back());
    expect_same(totals.summary(), summarize(all, kWarmup));
  }
  EXPECT_EQ(totals.steps(), 300U);
}

TEST(StepTotals, PercentilesOfALongRunAreAccurateToOnePercent) {
  std::mt19937 random(2);
  std::lognormal_distribution<double> seconds(-6, 2);
  StepTotals totals(kWarmup);
  std::vector<StepRecord> all;
  for (std::size_t i = 0; i < 5 * StepTotals::kExact; ++i) {
    all.push_back(step_of(seconds(random)));
    totals.add(all.back());
  }
  const auto expected = summarize(all, kWarmup);
  EXPECT_NEAR(totals.summary().p50 / expected.p50, 1, 0.01);
  EXPECT_NEAR(totals.summary().p95 / expected.p95, 1, 0.01);
  EXPECT_NEAR(totals.summary().mean / expected.mean, 1, 1e-9);
}

TEST(StepTotals, AbsurdDurationsHaveABin) {
  StepTotals totals(0);
  for (std::size_t i = 0; i < StepTotals::kExact; ++i) totals.add(step_of(0));
  for (const double seconds : {0.0, 1e-12, 1e6, 1e9}) totals.add(step_of(seconds));
  EXPECT_LT(totals.summary().p50, 1e-5);
}

}  // namespace
}  // namespace ddp::profile
