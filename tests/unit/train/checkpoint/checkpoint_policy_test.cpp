// SPDX-License-Identifier: Apache-2.0
// When a run saves, and which checkpoints it keeps.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "ddp_runtime/data/tensor_dataset.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/saved_arrays.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kStepsPerEpoch = 8;

// The scores of a model in an evaluation: the larger, the lower the loss; negative: all wrong.
// `wrong`: the share of the samples, roughly, that are wrong anyway, by the second feature.
struct Quality {
  double score = 1;
  double wrong = 0;
};

class CheckpointPolicy : public testing::Test {
 protected:
  CheckpointPolicy() {
    torch::set_num_threads(1);
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(7);
    const auto inputs = torch::rand({64, 4}, generator) * 2 - 1;
    const auto targets = inputs.select(1, 0).gt(0).to(torch::kInt64);
    training_ = std::make_shared<data::TensorDataset>(inputs, targets, 2);
    evaluation_ = std::make_shared<data::TensorDataset>(inputs, targets, 2);
    options_.batch = 4;  // kStepsPerEpoch on 2 ranks
    options_.checkpoint.directory = dir_;
    options_.checkpoint.every_epoch = false;
    options_.checkpoint.keep_last = 100;
  }

  static torch::Tensor scores_of(const Quality& quality, const torch::Tensor& x) {
    const auto sign = torch::where(x.select(1, 1).lt(2 * quality.wrong - 1), -x.select(1, 0).sign(),
                                   x.select(1, 0).sign());
    return torch::stack({-quality.score * sign, quality.score * sign}, 1);
  }

  // Returns rank 0's result, and stores its output in `said_`. The evaluation after the epoch E of
  // this process, from 0, has qualities_[E].
  RunResult run(const TrainOptions& options) {
    const data::DataPair data{"points", training_, evaluation_};
    const auto ends = train_ranks(2, options, data, filled_layer, [&](auto& rank) {
      if (prints_) rank.task.log = {};
      rank.task.forward = [this, &net = rank.model, steps = 0](const torch::Tensor& x) mutable {
        steps += net->is_training() ? 1 : 0;
        const auto epoch = static_cast<std::size_t>(std::max(0, steps - 1) / kStepsPerEpoch);
        return net->is_training() || qualities_.empty() ? net->forward(x)
                                                        : scores_of(qualities_.at(epoch), x);
      };
    });
    said_ = ends[0].output;
    return ends[0].result;
  }

  test::TemporaryDirectory temporary_;
  fs::path dir_ = temporary_.path() / "ck";
  fs::path best_ = dir_ / "best";
  std::shared_ptr<data::TensorDataset> training_;
  std::shared_ptr<data::TensorDataset> evaluation_;
  std::vector<Quality> qualities_;
  TrainOptions options_;
  bool prints_ = false;
  std::string said_;
};

// A time that passes in every step: the first step asks for a save, and all ranks begin it after
// that step.
TEST_F(CheckpointPolicy, SavesByTheClockOfRankZero) {
  options_.epochs = 2;
  const auto plain = run(options_);
  EXPECT_THAT(steps_in(dir_), ElementsAre(16));
  fs::remove_all(dir_);

  options_.checkpoint.every_seconds = 1e-9;
  const auto timed = run(options_);
  EXPECT_EQ(timed.parameters_crc32c, plain.parameters_crc32c);
  const auto steps = steps_in(dir_);
  ASSERT_GE(steps.size(), 2U);
  EXPECT_EQ(steps.front(), 1U);
  EXPECT_EQ(steps.back(), 16U);

  // A run that resumes from a step that the clock chose ends like the others.
  options_.checkpoint.resume = (dir_ / "step-00000001").string();
  EXPECT_EQ(run(options_).parameters_crc32c, plain.parameters_crc32c);
  EXPECT_THAT(said_, HasSubstr("(step 1, made by 2 ranks)"));
}

TEST_F(CheckpointPolicy, DoesNotSaveBeforeTheTimeHasPassed) {
  options_.epochs = 2;
  options_.checkpoint.every_seconds = 3600;
  run(options_);
  EXPECT_THAT(steps_in(dir_), ElementsAre(16));
}

TEST_F(CheckpointPolicy, YoungsIntervalFollowsFromTheFirstSave) {
  options_.checkpoint.every_auto = true;
  options_.checkpoint.mtbf_seconds = 7200;
  options_.checkpoint.keep_every_steps = 3;
  options_.epochs = 1;
  run(options_);
  EXPECT_THAT(said_,
              testing::ContainsRegex("checkpoint: saves every [0-9.]+ s of training from now "
                                     "on .*expected to fail every 2 h"));
}

TEST_F(CheckpointPolicy, KeepsEveryNthStepForGood) {
  options_.epochs = 2;
  options_.checkpoint.keep_last = 1;
  options_.checkpoint.keep_every_steps = 6;
  run(options_);
  EXPECT_THAT(steps_in(dir_), ElementsAre(6, 12, 16)) << "they are also saved";

  // A resumed run keeps them, whatever its own options are.
  options_.checkpoint.keep_every_steps = 0;
  options_.checkpoint.every_steps = 3;
  options_.epochs = 3;
  run(options_);
  EXPECT_THAT(steps_in(dir_), ElementsAre(6, 12, 24));

  // A rollback sets the later ones aside, and keeps the earlier ones.
  options_.checkpoint.resume = (dir_ / "step-00000006").string();
  run(options_);
  EXPECT_THAT(steps_in(dir_), ElementsAre(6, 24));
  const auto is_step_12 = [](const auto& e) {
    return e.path().filename().string().starts_with(".superseded-step-00000012.");
  };
  EXPECT_EQ(std::count_if(fs::directory_iterator(dir_), {}, is_step_12), 1);
}

TEST_F(CheckpointPolicy, KeepsEveryNthEpochForGood) {
  options_.epochs = 5;
  options_.checkpoint.keep_last = 1;
  options_.checkpoint.every_steps = 5;
  options_.checkpoint.keep_every_epochs = 2;
  run(options_);
  EXPECT_THAT(steps_in(dir_), ElementsAre(16, 32, 40));
}

TEST_F(CheckpointPolicy, KeepsTheBest) {
  options_.checkpoint.keep_best = true;
  qualities_ = {{1}, {3}, {2}, {4}, {0.5}, {2.5}};
  options_.epochs = 6;
  const auto result = run(options_);
  EXPECT_THAT(steps_in(best_), ElementsAre(32));
  EXPECT_EQ(result.best_checkpoint, best_ / "step-00000032");
  EXPECT_EQ(test::text_of(best_ / "latest"), "step-00000032\n");

  // A resumed run compares with it.
  options_.epochs = 7;
  qualities_ = {{3.5}};
  run(options_);
  EXPECT_THAT(steps_in(best_), ElementsAre(32));
  options_.epochs = 8;
  qualities_ = {{5}};
  run(options_);
  EXPECT_THAT(steps_in(best_), ElementsAre(64));
}

TEST_F(CheckpointPolicy, BestFollowsTheChosenMetric) {
  options_.checkpoint.keep_best = true;
  options_.checkpoint.best_metric = "accuracy";
  qualities_ = {{1, 0.25}, {0.1, 0}, {5, 0.5}, {1, 0.125}};
  options_.epochs = 4;
  run(options_);
  EXPECT_THAT(steps_in(best_), ElementsAre(16));
  // With the other metric, the same checkpoint has another value: its loss is high.
  options_.checkpoint.best_metric = "loss";
  qualities_ = {{2, 0}};
  options_.epochs = 5;
  run(options_);
  EXPECT_THAT(steps_in(best_), ElementsAre(40));
}

TEST_F(CheckpointPolicy, RollbackSetsALaterBestOneAside) {
  options_.checkpoint.every_epoch = true;
  options_.checkpoint.keep_best = true;
  qualities_ = {{2}, {1}, {3}, {1.5}};
  options_.epochs = 4;
  run(options_);
  EXPECT_THAT(steps_in(best_), ElementsAre(24));
  options_.checkpoint.resume = (dir_ / "step-00000016").string();
  options_.epochs = 3;
  qualities_ = {{1.75}};
  run(options_);
  EXPECT_THAT(said_, HasSubstr("the best checkpoint of an abandoned branch is kept as"));
  EXPECT_THAT(steps_in(best_), ElementsAre(24)) << "of this branch";
  EXPECT_EQ(test::text_of(best_ / "latest"), "step-00000024\n");
}

TEST_F(CheckpointPolicy, BestOneOfAnotherRunIsSetAside) {
  options_.checkpoint.keep_best = true;
  qualities_ = {{4}, {3}};
  options_.epochs = 2;
  run(options_);
  fs::remove_all(dir_ / "step-00000016");  // the next run starts afresh
  fs::remove(dir_ / "latest");
  qualities_ = {{1}, {2}, {1.5}};
  options_.epochs = 3;
  run(options_);
  EXPECT_THAT(said_, HasSubstr("the best checkpoint of another run is kept as"));
  EXPECT_THAT(steps_in(best_), ElementsAre(16));
}

TEST_F(CheckpointPolicy, RefusesAMetricThatDoesNotExist) {
  options_.checkpoint.best_metric = "f1";
  EXPECT_THAT(error_of([&] { run(options_); }), HasSubstr("unknown metric 'f1'"));
}

// The first command runs until the last checkpoint exists. Meanwhile retention deletes all others.
TEST_F(CheckpointPolicy, CheckpointIsKeptWhileItsCommandRuns) {
  options_.epochs = 2;
  options_.checkpoint.every_steps = 2;
  options_.checkpoint.keep_last = 1;
  const auto seen = temporary_.path() / "seen";
  options_.checkpoint.after_save = fmt::format(
      "until [ -e '{0}'/step-00000016 ]; do sleep 0.01; done; cat \"$SLURM_DDP_CHECKPOINT\"/"
      "manifest.json > /dev/null && {{ [ $SLURM_DDP_STEP != 16 ] || sleep 1.2; }} && echo "
      "$SLURM_DDP_STEP >> '{1}'",
      dir_.string(), seen.string());
  run(options_);
  EXPECT_THAT(test::text_of(seen), testing::MatchesRegex("([2468]|10|12)\n(14\n)?16\n"))
      << "the run waits for the last command";
  EXPECT_THAT(test::text_of(dir_ / "after-save.log"), HasSubstr("step 16: exit status 0\n"));
}

TEST_F(CheckpointPolicy, FailingAndHangingCommandsDoNotStopTraining) {
  prints_ = true;
  options_.epochs = 1;
  options_.checkpoint.every_steps = 3;
  options_.checkpoint.after_save = "exit 7";
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(options_).step, 8);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("step 8 failed: exit status 7"));

  options_.epochs = 2;
  options_.checkpoint.after_save = "sleep 1000";
  options_.checkpoint.after_save_limit_seconds = 0.3;
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(options_).step, 16);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("warning: the command after"));
}

}  // namespace
}  // namespace ddp::train
