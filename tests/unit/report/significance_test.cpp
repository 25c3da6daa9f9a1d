// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/report/analysis/significance.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

#include "ddp_runtime/report/analysis/comparison.h"
#include "tests/unit/report/sample_runs.h"

namespace ddp::report {
namespace {

using Values = std::vector<double>;

TEST(Significance, ChangeOfFiveAndFiveRuns) {
  // In R: t.test(log(b), log(a), var.equal = TRUE, conf.level = 0.98)
  const Values a{1.00, 1.01, 0.99, 1.02, 0.98};
  const Values b{1.06, 1.04, 1.05, 1.07, 1.03};
  const auto change = change_of(a, b);
  ASSERT_TRUE(change);
  EXPECT_NEAR(change->estimate, 0.05000, 2e-4);
  // Pooled deviation 0.015480, standard error 0.009791, t = 2.896.
  EXPECT_NEAR(change->noise, 0.01560, 2e-4);
  EXPECT_NEAR(change->least, 1.05 * std::exp(-2.896 * 0.009791) - 1, 4e-4);
  EXPECT_NEAR(change->most, 1.05 * std::exp(2.896 * 0.009791) - 1, 4e-4);
}

TEST(Significance, TooFewOrImpossibleFiguresShowNothing) {
  const Values one{1};
  const Values three{1, 2, 3};
  EXPECT_FALSE(change_of(one, one));
  EXPECT_FALSE(change_of(three, {}));
  EXPECT_FALSE(change_of(one, Values{1, 2}));
  EXPECT_TRUE(change_of(one, three));
  for (const double wrong : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_FALSE(change_of(three, Values{1, wrong}));
  }
}

TEST(Significance, Judgments) {
  const auto judgment = [](double least, double estimate, double most, double limit) {
    return judge(Change{estimate, least, most, 0.01}, limit);
  };
  EXPECT_EQ(judgment(-0.01, 0, 0.01, 0.05), Judgment::fine);
  EXPECT_EQ(judgment(-0.30, -0.2, -0.1, 0), Judgment::fine);
  EXPECT_EQ(judgment(0.01, 0.02, 0.03, 0.05), Judgment::fine);  // beyond noise, and accepted
  EXPECT_EQ(judgment(0.04, 0.06, 0.08, 0.05), Judgment::regression);
  EXPECT_EQ(judgment(0.02, 0.04, 0.06, 0.05), Judgment::cannot_tell);
  EXPECT_EQ(judgment(-0.01, 0.06, 0.13, 0.05), Judgment::cannot_tell);
  EXPECT_EQ(judge(std::nullopt, 0.05), Judgment::cannot_tell);
}

// Runs whose times differ by chance, as on a cluster: 1.5 %.
Values runs(std::mt19937_64& random, std::size_t count, double slower) {
  std::normal_distribution<double> noise(0, 0.015);
  Values values;
  for (std::size_t i = 0; i < count; ++i) values.push_back((1 + slower) * std::exp(noise(random)));
  return values;
}

TEST(Significance, NoiseIsNoRegressionAndFivePercentAreFound) {
  std::mt19937_64 random(1);
  constexpr int kPairs = 1000;
  int false_alarms = 0;
  int found = 0;
  int covered = 0;
  for (int i = 0; i < kPairs; ++i) {
    const auto before = runs(random, 5, 0);
    if (judge(change_of(before, runs(random, 5, 0)), 0) == Judgment::regression) ++false_alarms;
    const auto change = change_of(before, runs(random, 5, 0.05));
    if (judge(change, 0.01) == Judgment::regression) ++found;
    if (change->least <= 0.05 && 0.05 <= change->most) ++covered;
  }
  EXPECT_LE(false_alarms, 0.02 * kPairs);
  EXPECT_GE(found, 0.95 * kPairs);
  EXPECT_NEAR(covered, 0.98 * kPairs, 0.015 * kPairs);
}

TEST(Significance, Sentences) {
  EXPECT_EQ(sentence_of(Change{0.052, 0.039, 0.065, 0.01}, "slower", "faster"),
            "B is 5.2 % (3.9 % to 6.5 %) slower than A");
  EXPECT_EQ(sentence_of(Change{-0.052, -0.065, -0.039, 0.01}, "slower", "faster"),
            "B is 5.2 % (3.9 % to 6.5 %) faster than A");
  EXPECT_EQ(sentence_of(Change{0.005, -0.01, 0.021, 0.01}, "slower", "faster"),
            "B and A cannot be distinguished: -1.0 % to +2.1 %");
}

TEST(Comparison, TakesTheRunsThatRecordAFigure) {
  const std::vector<double> parts{0.1, 0.2, 0.3, 0, 0, 0, 0};
  auto unknown = test::run_json(2, 64, parts);
  unknown["samples_per_second"] = nullptr;
  const auto group = analyze({test::run_of(test::run_json(2, 64, parts)), test::run_of(unknown),
                              test::run_of(test::run_json(2, 64, parts))})
                         .points.front();
  const auto time = compare(group, group, Metric::time);
  EXPECT_EQ(time.runs_a, 2U);
  ASSERT_TRUE(time.change);
  EXPECT_EQ(time.change->estimate, 0);
  EXPECT_EQ(compare(group, group, Metric::p50).runs_b, 3U);
  EXPECT_EQ(sentence_of(compare(group, group, Metric::memory)),
            "0 runs and 0 runs with a peak memory of a rank do not show how much runs differ by "
            "chance; give four or more, such as two before and two after a change");
}

TEST(Comparison, MetricsHaveNames) {
  for (const auto& entry : kMetricNames) EXPECT_EQ(metric_of(entry.name), entry.metric);
  EXPECT_FALSE(metric_of("speed"));
}

}  // namespace
}  // namespace ddp::report
