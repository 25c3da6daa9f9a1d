// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/loss_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/test_device.h"

namespace ddp::train {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

MeanLoss loss_of(double value) {
  MeanLoss loss;
  loss.add(LateValue(test::on_test_device(torch::tensor(value, torch::kFloat64))));
  return loss;
}

std::vector<std::pair<std::int64_t, double>> losses_of(const std::vector<StepLoss>& steps) {
  std::vector<std::pair<std::int64_t, double>> losses;
  for (const auto& step : steps) losses.emplace_back(step.step, step.loss);
  return losses;
}

TEST(LossHistory, AveragesEachStepOnceAndKeepsTheNewest) {
  test::run_ranks(2, [](comm::Group& group) {
    const double own = group.rank();  // 0 or 1
    LossHistory history;
    history.add({.step = 1}, loss_of(2 + own));
    history.add({.step = 2}, loss_of(4 + own));
    EXPECT_EQ(history.newest_loss(), 4 + own);
    EXPECT_THAT(history.take_averaged(), IsEmpty()) << "nothing is averaged yet";
    EXPECT_THAT(history.average(group), ElementsAre(2.5, 4.5));
    EXPECT_THAT(history.average(group), IsEmpty());
    EXPECT_EQ(history.newest_loss(), 4.5);
    EXPECT_THAT(losses_of(history.take_averaged()),
                ElementsAre(std::pair(std::int64_t{1}, 2.5), std::pair(std::int64_t{2}, 4.5)));
    EXPECT_EQ(history.newest().step, 2);

    history.add({.step = 3, .learning_rate = 0.1}, loss_of(6 + own));
    history.set_seconds(0.25);
    EXPECT_EQ(history.newest().learning_rate, 0.1);
    EXPECT_THAT(history.average(group), ElementsAre(6.5));
    const auto rest = history.take_averaged();
    EXPECT_THAT(losses_of(rest), ElementsAre(std::pair(std::int64_t{3}, 6.5)));
    EXPECT_EQ(rest.back().seconds, 0.25);
  });
}

// As in a pipeline, whose last stage knows the loss.
TEST(LossHistory, AveragesOverTheRanksThatHaveLosses) {
  test::run_ranks(3, [](comm::Group& group) {
    LossHistory history;
    history.add({.step = 1}, group.rank() == 0 ? MeanLoss() : loss_of(2.0 * group.rank()));
    EXPECT_EQ(history.known_loss().has_value(), group.rank() > 0);
    EXPECT_THAT(history.average(group, 2), ElementsAre(3.0));
    EXPECT_EQ(history.newest_loss(), 3.0);
    history.add({.step = 2}, MeanLoss());
    EXPECT_EQ(history.newest_loss(), 3.0) << "the newest that is known";
  });
}

TEST(LossHistory, StepsThatAreNotAveragedStay) {
  test::run_ranks(1, [](comm::Group& group) {
    LossHistory history;
    history.add({.step = 1}, loss_of(1));
    history.average(group);
    history.add({.step = 2}, loss_of(2));
    EXPECT_THAT(losses_of(history.take_averaged()), ElementsAre(std::pair(std::int64_t{1}, 1.0)));
    EXPECT_THAT(history.average(group), ElementsAre(2.0));
  });
}

}  // namespace
}  // namespace ddp::train
