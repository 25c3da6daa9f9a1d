// SPDX-License-Identifier: Apache-2.0
// The order of checkpoints by their evaluations.
#include "ddp_runtime/train/checkpoint/directory/best_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/error_of.h"

namespace ddp::train {
namespace {

using testing::ElementsAre;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

BestEntry entry(std::uint64_t step, std::optional<double> cost) {
  return {{step, ""}, cost, false};
}

TEST(BestMetric, LowerLossAndHigherAccuracyAreBetter) {
  const Evaluation good{.loss = 0.5, .accuracy = 0.9, .targets = 1};
  const Evaluation bad{.loss = 0.75, .accuracy = 0.8, .targets = 1};
  for (const auto metric : {BestMetric::loss, BestMetric::accuracy}) {
    EXPECT_LT(cost_of(good, metric), cost_of(bad, metric));
    EXPECT_EQ(cost_in({{"evaluation", evaluation_to_json(good)}}, metric), cost_of(good, metric));
  }
  const Evaluation custom{.loss = kNan, .accuracy = kNan, .targets = 1};
  EXPECT_FALSE(cost_of(custom, BestMetric::loss));
  EXPECT_FALSE(cost_of(custom, BestMetric::accuracy));
  EXPECT_EQ(evaluation_to_json(custom), nlohmann::json::object());
  EXPECT_EQ(parse_best_metric("accuracy"), BestMetric::accuracy);
  EXPECT_EQ(error_of([] { parse_best_metric("f1"); }),
            "unknown metric 'f1' of the best evaluation (--best-metric); use loss or accuracy");
}

TEST(BestMetric, OldCheckpointsHaveTheBestLossInTheirPosition) {
  const nlohmann::json old = {{"position", {{"best_loss", 0.25}}}};
  EXPECT_EQ(cost_in(old, BestMetric::loss), 0.25);
  EXPECT_FALSE(cost_in(old, BestMetric::accuracy));
  for (const nlohmann::json& state : {nlohmann::json::object(), nlohmann::json{{"evaluation", 3}},
                                      nlohmann::json{{"evaluation", {{"loss", "low"}}}},
                                      nlohmann::json{{"position", {{"best_loss", nullptr}}}}}) {
    EXPECT_FALSE(cost_in(state, BestMetric::loss)) << state;
  }
}

TEST(BestOrder, PutsEqualOnesInTheOrderOfStepsAndUnknownOnesLast) {
  std::vector<BestEntry> entries = {entry(40, 0.5), entry(10, std::nullopt), entry(30, 0.25),
                                    entry(20, 0.5), entry(5, std::nullopt)};
  sort_best_first(entries);
  std::vector<std::uint64_t> steps;
  for (const auto& e : entries) steps.push_back(e.checkpoint.step);
  EXPECT_THAT(steps, ElementsAre(30, 20, 40, 5, 10));
}

TEST(BestOrder, NewCheckpointMustBeBetterThanTheWorstOfK) {
  const std::vector<BestEntry> entries = {entry(1, 0.25), entry(2, 0.5), entry(3, std::nullopt)};
  EXPECT_TRUE(is_among_best(0.125, entries, 1));
  EXPECT_FALSE(is_among_best(0.25, entries, 1)) << "an equal value is not better";
  EXPECT_FALSE(is_among_best(0.375, entries, 1));
  EXPECT_TRUE(is_among_best(0.375, entries, 2));
  EXPECT_FALSE(is_among_best(0.5, entries, 2));
  EXPECT_TRUE(is_among_best(0.75, entries, 3)) << "better than one of unknown value";
  EXPECT_FALSE(is_among_best(std::nullopt, entries, 9));
  EXPECT_TRUE(is_among_best(9, {}, 1));
  EXPECT_FALSE(is_among_best(9, {}, 0));
}

}  // namespace
}  // namespace ddp::train
