// SPDX-License-Identifier: Apache-2.0
// Evaluations of what a run has saved: of the weights or of their average, with no regard to how
// they were trained.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "ddp_runtime/models/model.h"
#include "ddp_runtime/train/model/freeze.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class OnlyEvaluating : public testing::TestWithParam<Shard> {
 protected:
  OnlyEvaluating() {
    torch::set_num_threads(1);
    options_.batch = 8;
    options_.steps = 5;
    options_.shard = GetParam();
    options_.optimizer = {"adamw", 0.003, 0.9, 0.01};
  }

  RunResult run(const TrainOptions& options, const fs::path& initial = {}) {
    const auto make = [this] {
      return models::make_model(
          {.name = "mlp", .input = {1, 4, 4}, .classes = 2, .width = 24, .layers = layers_});
    };
    auto leader = train_ranks(2, options, data_, make, [&](auto& rank) {
      rank.options.units = rank.model->units();
      if (!frozen_.empty()) freeze(*rank.model, frozen_);
      if (!initial.empty()) rank.task.initial_weights = InitialWeights{initial};
    })[0];
    said_ = std::move(leader.output);
    return std::move(leader.result);
  }

  RunResult trained(const std::string& directory) {
    auto options = options_;
    options.checkpoint.directory = root_ / directory;
    return run(options);
  }

  // With the options of a program that knows nothing of the training.
  TrainOptions evaluating(const fs::path& what) const {
    TrainOptions options;
    options.batch = options_.batch;
    options.shard = GetParam();
    options.evaluate_only = true;
    options.checkpoint.evaluated_directory = what;
    return options;
  }

  test::TemporaryDirectory temporary_;
  fs::path root_ = temporary_.path();
  TrainOptions options_;
  data::DataPair data_ = random_images({64, 1, 4, 4});
  std::int64_t layers_ = 2;
  std::string frozen_;
  std::string said_;
};

INSTANTIATE_TEST_SUITE_P(Strategies, OnlyEvaluating,
                         testing::Values(Shard::none, Shard::gradients, Shard::parameters));

TEST_P(OnlyEvaluating, NeedsNothingOfTheTraining) {
  const auto saved = trained("run");
  auto options = evaluating(root_ / "run");
  const auto newest = run(options);
  EXPECT_EQ(newest.parameters_crc32c, saved.parameters_crc32c);
  EXPECT_DOUBLE_EQ(newest.evaluation.loss, saved.evaluation.loss);
  EXPECT_THAT(said_, AllOf(HasSubstr("evaluated step 5: eval loss"), Not(HasSubstr(" was ")),
                           Not(HasSubstr("average"))));
  options.checkpoint.evaluated_directory.clear();
  options.checkpoint.resume = saved.checkpoint;
  EXPECT_DOUBLE_EQ(run(options).evaluation.loss, saved.evaluation.loss);
  options.batch = 48;  // of two ranks: more than the training has samples
  EXPECT_NEAR(run(options).evaluation.loss, saved.evaluation.loss, 1e-6);
}

TEST_P(OnlyEvaluating, TakesTheAverageIfAsked) {
  options_.ema_decay = 0.9;
  const auto saved = trained("run");
  auto options = evaluating(root_ / "run");
  const auto weights = run(options);
  EXPECT_NE(weights.evaluation.loss, saved.evaluation.loss);
  EXPECT_EQ(weights.parameters_crc32c, saved.parameters_crc32c);
  EXPECT_THAT(said_, AllOf(HasSubstr("evaluated step 5: eval loss"),
                           HasSubstr("the run evaluated their average, which --ema 0.9 takes")));
  options.ema_decay = 0.5;
  const auto average = run(options);
  EXPECT_DOUBLE_EQ(average.evaluation.loss, saved.evaluation.loss);
  EXPECT_NE(average.parameters_crc32c, saved.parameters_crc32c);
  EXPECT_THAT(said_, AllOf(HasSubstr("evaluated step 5, the average (--ema): eval loss"),
                           Not(HasSubstr("this is of the weights"))));
  options.checkpoint.evaluated_directory.clear();
  const auto from_file = run(options, root_ / "run");
  EXPECT_DOUBLE_EQ(from_file.evaluation.loss, saved.evaluation.loss);
  EXPECT_EQ(from_file.parameters_crc32c, average.parameters_crc32c);
  EXPECT_THAT(said_, HasSubstr("evaluated the initial weights, the average (--ema): eval loss"));
}

TEST_P(OnlyEvaluating, NamesAWeightWithoutAnAverage) {
  options_.ema_decay = 0.9;
  frozen_ = "hidden.1*";
  const auto saved = trained("run");
  auto options = evaluating(root_ / "run");
  options.ema_decay = 0.9;
  EXPECT_DOUBLE_EQ(run(options).evaluation.loss, saved.evaluation.loss);
  frozen_.clear();
  EXPECT_THAT(error_of([&] { run(options); }),
              AllOf(HasSubstr("has no average of 'hidden.1."),
                    HasSubstr("which its run did not train: give the --freeze of that run")));
}

TEST_P(OnlyEvaluating, SaysWhatIsMissing) {
  trained("run");
  auto options = evaluating(root_ / "run");
  options.ema_decay = 0.9;
  EXPECT_THAT(error_of([&] { run(options); }),
              HasSubstr("has no average of the weights: leave out --ema"));
  options.checkpoint.evaluated_directory.clear();
  EXPECT_THAT(error_of([&] { run(options, root_ / "run"); }),
              HasSubstr("has no average of the weights, which a run with --ema saves"));
  EXPECT_THAT(error_of([&] { run(evaluating(root_ / "nothing")); }),
              HasSubstr("nothing holds no checkpoint to evaluate"));
  const auto step = root_ / "run/step-00000005";
  EXPECT_THAT(error_of([&] { run(evaluating(step)); }),
              HasSubstr("is itself a checkpoint: evaluate it with --resume " + step.string()));
  layers_ = 1;
  EXPECT_THAT(error_of([&] { run(evaluating(root_ / "run")); }),
              HasSubstr("and the model has not; build the same model"));
}

}  // namespace
}  // namespace ddp::train
