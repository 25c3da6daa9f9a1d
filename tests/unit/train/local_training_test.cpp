// SPDX-License-Identifier: Apache-2.0
// Training with local steps: what it equals, what it evaluates, and what it refuses.
#include <gmock/gmock.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/unit/error_of.h"
#include "tests/unit/train/local_runs.h"

namespace ddp::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LocalTraining : public LocalRuns {};

TEST_F(LocalTraining, EqualsDataParallelBitwiseWhileItsStepsAreSynchronous) {
  for (const int ranks : {2, 3}) {
    options_.local.reset();
    const auto ddp = train(ranks, 5);
    options_.local = LocalStepsOptions{.every = 2, .from = 5};
    expect_same(train(ranks, 5), ddp);
    EXPECT_EQ(nlohmann::json::parse(result_.report).at("local_steps").at("averages"), 0);
  }
}

// Without momentum, and without layers that depend on the ranks' own statistics.
TEST_F(LocalTraining, OfOneStepEqualsDataParallelExceptForRounding) {
  options_.optimizer.momentum = 0;
  options_.micro_batches = 2;
  options_.warmup_steps = 3;
  loss_of_ = [](int) {
    return [](const torch::Tensor& scores, const torch::Tensor&) { return scores.pow(2).mean(); };
  };
  for (const int ranks : {1, 2, 4}) {
    options_.local.reset();
    const auto ddp = train(ranks, 1);
    options_.local = LocalStepsOptions{.every = 1};
    const auto local = train(ranks, 1);
    for (const auto& [name, tensor] : local[0]) {
      if (name.find("running") != std::string::npos) continue;
      EXPECT_TRUE(torch::allclose(tensor, ddp[0].at(name), 1e-5, 1e-7)) << name;
    }
    expect_same_on_all_ranks(local);
  }
}

TEST_F(LocalTraining, EndsWithTheMeanOfTheRanksInTheMiddleOfARound) {
  options_.local = LocalStepsOptions{.every = 4};
  const auto ends = train(3, 6, "saved");
  expect_same_on_all_ranks(ends);
  const auto arrays = saved("saved");
  const auto& mean = ends[0].at("0.weight");
  ASSERT_EQ(arrays.at("model/0.weight").size(), mean.nbytes());
  EXPECT_EQ(std::memcmp(arrays.at("model/0.weight").data(), mean.data_ptr(), mean.nbytes()), 0);
  const auto rows = torch::from_blob(
      const_cast<std::byte*>(arrays.at("local/rank/model/0.weight").data()), {3, 6, 8});
  EXPECT_FALSE(torch::equal(rows[0], rows[1]));
  EXPECT_TRUE(torch::allclose(rows.mean(0), mean, 1e-6, 1e-7));
  const auto statistics = torch::from_blob(
      const_cast<std::byte*>(arrays.at("local/rank/model/1.running_mean").data()), {3, 6});
  EXPECT_TRUE(torch::allclose(statistics.mean(0), ends[0].at("1.running_mean"), 1e-6, 1e-7));
}

// An evaluation changes nothing for the steps after it.
TEST_F(LocalTraining, IsNotChangedByEvaluationsAndCheckpointsInTheMiddleOfARound) {
  for (const auto kind : {Outer::average, Outer::nesterov}) {
    options_.local = LocalStepsOptions{.every = 7, .outer = {.kind = kind}};
    options_.checkpoint.every_steps = 0;
    const auto undisturbed = train(2, 18);  // epochs of 15 steps
    options_.checkpoint.every_steps = 3;
    const auto name = "saved-" + outer_name(kind);
    expect_same(train(2, 18, name), undisturbed);
  }
}

TEST_F(LocalTraining, ReportsItsAverages) {
  options_.local = LocalStepsOptions{
      .every = 3, .from = 2, .outer = {.kind = Outer::nesterov, .learning_rate = 0.5}};
  train(2, 9);
  const auto report = nlohmann::json::parse(result_.report);
  const auto& section = report.at("local_steps");
  EXPECT_EQ(section.at("averages"), 2);  // after steps 5 and 8
  EXPECT_EQ(section.at("every"), 3);
  EXPECT_EQ(section.at("from"), 2);
  EXPECT_EQ(section.at("within"), "rank");
  EXPECT_EQ(section.at("outer"), "nesterov");
  EXPECT_EQ(section.at("outer_lr"), 0.5);
  EXPECT_EQ(section.at("outer_momentum"), 0.9);
  // 8 x 6 + 6 + 2 x 6 + 6 x 2 + 2 parameters, and 2 x 6 statistics.
  EXPECT_EQ(section.at("bytes_per_average"), (80 + 12) * 4);
  EXPECT_GT(section.at("seconds_of_averages"), 0);
  EXPECT_EQ(report.at("settings").at("local_steps"), 3);
  options_.local.reset();
  train(2, 2);
  EXPECT_FALSE(nlohmann::json::parse(result_.report).contains("local_steps"));
}

TEST_F(LocalTraining, NamesTheRankWhoseLossIsNotFinite) {
  options_.local = LocalStepsOptions{.every = 4};
  loss_of_ = [](int rank) {
    return [rank, call = 0](const torch::Tensor& scores, const torch::Tensor& targets) mutable {
      const double factor =
          rank == 1 && ++call == 2 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
      return mean_cross_entropy(scores, targets) * factor;
    };
  };
  EXPECT_THAT(error_of([&] { train(3, 8); }), AllOf(HasSubstr("not finite"), HasSubstr("rank 1")));
}

// Of one rank, so the others do not skip theirs.
TEST_F(LocalTraining, SkipsStepsThatAreNotFiniteOnTheirRankAlone) {
  options_.local = LocalStepsOptions{.every = 4};
  options_.on_nan = OnNan::skip;
  loss_of_ = [](int rank) {
    return [rank, call = 0](const torch::Tensor& scores, const torch::Tensor& targets) mutable {
      const bool bad = scores.requires_grad() && rank == 1 && ++call == 2;
      return mean_cross_entropy(scores, targets) *
             (bad ? std::numeric_limits<double>::quiet_NaN() : 1.0);
    };
  };
  const auto ends = train(3, 9);
  expect_same_on_all_ranks(ends);
  EXPECT_TRUE(ends[0].at("0.weight").isfinite().all().item<bool>());
  EXPECT_THAT(lines_, HasSubstr("rank 1 skipped the update of its step 2: "));
  EXPECT_EQ(lines_.find("rank 0 skipped"), std::string::npos);
}

TEST_F(LocalTraining, RefusesWhatItCannotDo) {
  const std::vector<std::tuple<const char*, void (*)(TrainOptions&)>> cases = {
      {"--shard: ranks with different", [](auto& o) { o.shard = Shard::optimizer; }},
      {"--shard: ranks with different", [](auto& o) { o.shard = Shard::parameters; }},
      {"--ema: ", [](auto& o) { o.ema_decay = 0.9; }},
      {"--param-type bf16: ",
       [](auto& o) {
         o.param_type = amp::Precision::bf16;
         o.precision = amp::Precision::bf16;
       }},
      {"--comm-hook: ",
       [](auto& o) { o.parallel.hook = [](GradientBucket&) -> HookTask { co_return; }; }},
      {"--reduce-type: ", [](auto& o) { o.parallel.reduce_type = torch::kBFloat16; }},
      {"leave out one of them", [](auto& o) { o.staleness = 1; }},
      {"outer learning rate is -1", [](auto& o) { o.local->outer.learning_rate = -1; }},
      {"outer momentum is 1;", [](auto& o) { o.local->outer.momentum = 1; }},
      {"local.every of the training is 0", [](auto& o) { o.local->every = 0; }},
      {"local.from of the training is -1", [](auto& o) { o.local->from = -1; }}};
  for (const auto& [text, ask] : cases) {
    change_ = [ask = ask](int, TrainOptions& options) {
      options.local = LocalStepsOptions{.every = 2};
      ask(options);
    };
    EXPECT_THAT(error_of([&] { train(2, 2); }), HasSubstr(text));
  }
}

TEST_F(LocalTraining, RefusesRanksWithOtherOptions) {
  change_ = [](int rank, TrainOptions& options) {
    options.local = LocalStepsOptions{.every = rank == 1 ? 5 : 4};
  };
  EXPECT_THAT(error_of([&] { train(3, 2); }),
              AllOf(HasSubstr("different options"), HasSubstr("rank 1"), HasSubstr("local_steps")));
}

TEST_F(LocalTraining, AllowsGradientHooksWithinNodes) {
  options_.local = LocalStepsOptions{.every = 2, .within = LocalWithin::node};
  options_.parallel.reduce_type = torch::kBFloat16;
  node_of_ = [](int rank) { return rank / 2; };
  expect_same_on_all_ranks(train(4, 3));
}

}  // namespace
}  // namespace ddp::train
