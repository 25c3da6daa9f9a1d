// SPDX-License-Identifier: Apache-2.0
// What makes an evaluation better.
#include "ddp_runtime/train/checkpoint/directory/best_checkpoint.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/error_of.h"

namespace ddp::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

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

}  // namespace
}  // namespace ddp::train
