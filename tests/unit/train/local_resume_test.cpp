// SPDX-License-Identifier: Apache-2.0
// Checkpoints of training with local steps: bitwise with the same ranks, from the mean with others.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/unit/train/local_runs.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kEnd = 11;

class LocalResume : public LocalRuns {
 protected:
  LocalResume() { options_.warmup_steps = 6; }

  // Saves after `stop` steps, resumes, and compares with a run that was not interrupted: all
  // arrays, thus also what each rank has on its own, at the end, in the middle of a round.
  void expect_bitwise(int ranks, std::int64_t stop, const std::string& name) {
    SCOPED_TRACE(name + ", " + std::to_string(ranks) + " ranks, stopped after " +
                 std::to_string(stop));
    const auto tag = name + std::to_string(ranks) + "-" + std::to_string(stop);
    const auto whole = train(ranks, kEnd, "whole-" + tag);
    train(ranks, stop, "parts-" + tag);
    expect_same(train(ranks, kEnd, "parts-" + tag), whole);
    EXPECT_THAT(lines_, HasSubstr("resumed from"));
    EXPECT_THAT(lines_, Not(HasSubstr("local steps: all ranks continue")));
    const auto expected = saved("whole-" + tag);
    const auto found = saved("parts-" + tag);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [array, bytes] : expected) EXPECT_TRUE(found.at(array) == bytes) << array;
  }
};

// Rounds end after 4 and 8 steps: steps 5 and 4 are in the middle of a round and at an average.
TEST_F(LocalResume, IsBitwiseWithTheSameRanks) {
  for (const char* const optimizer : {"sgd", "adamw"}) {
    for (const auto kind : {Outer::average, Outer::nesterov}) {
      options_.optimizer.name = optimizer;
      options_.local = LocalStepsOptions{.every = 4, .outer = {.kind = kind}};
      const auto name = optimizer + ("-" + outer_name(kind));
      for (const std::int64_t stop : {4, 5}) expect_bitwise(2, stop, name);
    }
  }
  options_.local->outer.momentum = 0;
  for (const int ranks : {1, 3, 4}) expect_bitwise(ranks, 6, "other-ranks");
}

TEST_F(LocalResume, IsBitwiseWithLossScaling) {
  options_.loss_scale = 8;
  options_.local = LocalStepsOptions{.every = 4};
  // An overflow on rank 1 alone gives it another scale.
  loss_of_ = [](int rank) {
    return [rank](const torch::Tensor& scores, const torch::Tensor& targets) {
      if (scores.requires_grad() && rank == 1) {
        scores.register_hook([](const torch::Tensor& g) {
          return g.abs().max().item<double>() > 0.9 ? g * 1e38 * 1e10 : g;
        });
      }
      return mean_cross_entropy(scores, targets);
    };
  };
  expect_bitwise(2, 5, "scaled");
  const auto scales = saved("whole-scaled2-5").at("local/rank/loss_scale");
  EXPECT_FALSE(std::equal(scales.begin(), scales.begin() + 16, scales.begin() + 16));
}

TEST_F(LocalResume, IsBitwiseAroundTheFirstLocalStep) {
  options_.local = LocalStepsOptions{.every = 4, .from = 5, .outer = {.kind = Outer::nesterov}};
  for (const std::int64_t stop : {4, 5, 6}) expect_bitwise(3, stop, "post-local");
}

TEST_F(LocalResume, IsBitwiseWithinNodes) {
  options_.local = LocalStepsOptions{.every = 4, .within = LocalWithin::node};
  node_of_ = [](int rank) { return rank / 2; };
  expect_bitwise(4, 6, "nodes");
}

TEST_F(LocalResume, OfARankThatHasSkippedAllStepsIsBitwise) {
  options_.on_nan = OnNan::skip;
  options_.local = LocalStepsOptions{.every = 4};
  loss_of_ = [](int rank) {
    return [rank, call = 0](const torch::Tensor& scores, const torch::Tensor& targets) mutable {
      const bool bad = scores.requires_grad() && rank == 1 && ++call == 1;
      return mean_cross_entropy(scores, targets) * (bad ? 1e38 * 1e10 : 1.0);
    };
  };
  options_.optimizer.name = "adamw";
  train(2, 1, "skipped");
  loss_of_ = {};
  EXPECT_TRUE(saved("skipped").contains("local/rank/optim/0.weight/exp_avg"));
  train(2, 3, "skipped");
  EXPECT_THAT(lines_, HasSubstr("resumed from"));
}

TEST_F(LocalResume, AtAnAverageSavesNoParametersOfRanks) {
  options_.local = LocalStepsOptions{.every = 4, .outer = {.kind = Outer::nesterov}};
  train(2, 4, "average");
  const auto at_average = saved("average");
  EXPECT_FALSE(has_array(at_average, "local/rank/model/"));
  EXPECT_FALSE(has_array(at_average, "local/start/"));
  EXPECT_TRUE(has_array(at_average, "local/rank/optim/"));
  EXPECT_TRUE(has_array(at_average, "local/velocity/"));
  options_.local = LocalStepsOptions{.every = 4, .from = 4};
  train(2, 4, "synchronous");
  EXPECT_FALSE(has_array(saved("synchronous"), "local/"));
}

// Any other rank's would be as good, but all parameters must have that of one rank.
TEST_F(LocalResume, SavesRank0sStateOfTheOptimizerForOtherRuns) {
  options_.local = LocalStepsOptions{.every = 4};
  train(3, 6, "begun");
  const auto arrays = saved("begun");
  int compared = 0;
  for (const auto& [name, bytes] : arrays) {
    if (!name.starts_with("optim/")) continue;
    const auto& rows = arrays.at("local/rank/" + name);
    ASSERT_EQ(rows.size(), 3 * bytes.size());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), rows.begin())) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 6);
}

// The mean that was saved is where other runs begin.
TEST_F(LocalResume, WithOtherRanksContinuesFromTheMean) {
  options_.global_batch = 12;
  options_.local = LocalStepsOptions{.every = 4, .outer = {.kind = Outer::nesterov}};
  for (const std::int64_t stop : {4, 6}) {
    const auto tag = std::to_string(stop);
    const auto mean = train(2, stop, "begun" + tag);
    for (const int ranks : {1, 3}) {
      const auto directory = "other" + tag + std::to_string(ranks);
      copy("begun" + tag, directory);
      expect_same({train(ranks, stop, directory)[0]}, {mean[0]});
      expect_same_on_all_ranks(train(ranks, kEnd, directory));
      EXPECT_THAT(lines_, HasSubstr(stop == 6 ? "continue with the mean of the parameters and"
                                              : "continue with the optimizer's state"));
      EXPECT_THAT(lines_, HasSubstr("because the checkpoint has those of 2 ranks"));
    }
  }
}

TEST_F(LocalResume, WithoutLocalStepsContinuesFromTheMean) {
  options_.local = LocalStepsOptions{.every = 4, .outer = {.kind = Outer::nesterov}};
  const auto mean = train(2, 6, "begun");
  options_.local.reset();
  expect_same(train(2, 6, "begun"), mean);
  expect_same_on_all_ranks(train(2, kEnd, "begun"));
  EXPECT_THAT(lines_, HasSubstr("local_steps was 4 in the saved run and is 0 now"));
  EXPECT_FALSE(has_array(saved("begun"), "local/"));
}

TEST_F(LocalResume, OfARunWithoutLocalStepsBegins) {
  train(2, 5, "begun");
  options_.local = LocalStepsOptions{.every = 4, .outer = {.kind = Outer::nesterov}};
  expect_same_on_all_ranks(train(2, kEnd, "begun"));
}

TEST_F(LocalResume, WithAnOuterOptimizerThatTheRunDidNotHaveContinuesFromTheMean) {
  options_.local = LocalStepsOptions{.every = 4};
  train(2, 6, "begun");
  options_.local->outer.kind = Outer::nesterov;
  expect_same_on_all_ranks(train(2, kEnd, "begun"));
  EXPECT_THAT(lines_, HasSubstr("had no outer optimizer"));
}

TEST_F(LocalResume, BeforeTheFirstLocalStepContinuesFromTheMean) {
  options_.local = LocalStepsOptions{.every = 4};
  train(2, 6, "begun");
  options_.local->from = 20;
  expect_same_on_all_ranks(train(2, kEnd, "begun"));
  EXPECT_THAT(lines_, HasSubstr("because gradients are averaged in the next step"));
}

// Ranks 0 and 1 were on different nodes.
TEST_F(LocalResume, OnOtherNodesContinuesFromTheMean) {
  options_.local = LocalStepsOptions{.every = 4, .within = LocalWithin::node};
  node_of_ = [](int rank) { return rank % 2; };
  train(4, 6, "begun");
  node_of_ = [](int rank) { return rank / 2; };
  expect_same_on_all_ranks(train(4, kEnd, "begun"));
  EXPECT_THAT(lines_, HasSubstr("because ranks of one node had different ones"));
}

TEST_F(LocalResume, ComparesParametersOnlyWhenTheyShouldBeTheSame) {
  options_.parallel.check_parameters_every = 1;
  options_.checkpoint.every_steps = 1;
  for (const auto within : {LocalWithin::rank, LocalWithin::node}) {
    options_.local = LocalStepsOptions{.every = 3, .within = within};
    node_of_ = [](int rank) { return rank / 2; };
    expect_same_on_all_ranks(train(4, 8, "checked-" + local_within_name(within)));
  }
}

}  // namespace
}  // namespace ddp::train
