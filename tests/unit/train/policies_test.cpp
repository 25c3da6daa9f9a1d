// SPDX-License-Identifier: Apache-2.0
// Run policies: overflow, losses that are not finite, early stopping, dry runs, and a world size
// that changes in the middle of an epoch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "ddp_runtime/data/tensor_dataset.h"
#include "ddp_runtime/train/objective/best_evaluation.h"
#include "ddp_runtime/train/options/run_table.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Two classes that a linear model can separate: by the sign of the first feature.
struct Points {
  torch::Tensor inputs;
  torch::Tensor targets;
};

Points points(std::int64_t n) {
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(7);
  const auto inputs = torch::randn({n, 4}, generator);
  return {inputs, inputs.select(1, 0).gt(0).to(torch::kInt64)};
}

// Counts how often training draws each sample.
class Counting final : public data::Dataset {
 public:
  explicit Counting(const Points& p)
      : data_(p.inputs, p.targets, 2), drawn_(static_cast<std::size_t>(p.inputs.size(0))) {}

  std::int64_t size() const override { return data_.size(); }
  data::SampleShape shape() const override { return data_.shape(); }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    return data_.get(indices);
  }
  data::Batch draw(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const override {
    for (const auto i : indices) ++drawn_[static_cast<std::size_t>(i)];
    return get(indices);
  }
  std::vector<int> drawn() const { return {drawn_.begin(), drawn_.end()}; }

 private:
  data::TensorDataset data_;
  mutable std::vector<std::atomic<int>> drawn_;
};

// Of the model: the parameters.
constexpr std::array kParameters = {"0.weight", "0.bias", "1.weight", "1.bias"};

class Policies : public testing::Test {
 protected:
  void SetUp() override {
    torch::set_num_threads(1);
    use(points(64));
  }

  void use(const Points& p) {
    train_ = std::make_shared<Counting>(p);
    const auto held_out = points(32);
    evaluation_ = std::make_shared<data::TensorDataset>(held_out.inputs, held_out.targets, 2);
  }

  // Changes the scores in training, to spoil a loss or a gradient.
  using Spoil = std::function<torch::Tensor(const torch::Tensor& scores)>;

  // Returns rank 0's result. Stores its output in `said_` and the ranks' parameters and buffers in
  // `states_`. Rethrows an exception of any rank.
  RunResult run(int ranks, const TrainOptions& o, const Spoil& spoil = {}) {
    const auto make = [] {
      torch::nn::Sequential net(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
      const torch::NoGradGuard no_grad;
      for (auto& p : net->parameters()) p.fill_(0.5);
      return net;
    };
    const data::DataPair data{"points", train_, evaluation_};
    const auto ends = train_ranks(ranks, o, data, make, [&](auto& rank) {
      rank.task.forward = [&spoil, &net = rank.model](const torch::Tensor& x) {
        const auto scores = net->forward(x);
        return spoil && net->is_training() ? spoil(scores) : scores;
      };
    });
    states_.clear();
    for (const auto& end : ends) states_.push_back(end.state);
    said_ = ends[0].output;
    return ends[0].result;
  }

  // Running means may differ.
  bool all_ranks_agree() const {
    return std::ranges::all_of(states_, [&](const test::Values& state) {
      return std::ranges::all_of(kParameters, [&](const char* name) {
        return torch::equal(state.at(name), states_[0].at(name));
      });
    });
  }

  test::TemporaryDirectory temporary_;
  fs::path dir_ = temporary_.path();
  std::shared_ptr<Counting> train_;
  std::shared_ptr<data::TensorDataset> evaluation_;
  std::vector<test::Values> states_;
  std::string said_;
};

Points with_a_bad_sample(std::int64_t n) {
  auto p = points(n);
  p.inputs[5][2] = std::numeric_limits<float>::quiet_NaN();
  return p;
}

TEST_F(Policies, NanLossStopsTheRunNamingStepAndRank) {
  use(with_a_bad_sample(64));
  TrainOptions o;
  o.batch = 8;
  EXPECT_THAT(error_of([&] { run(2, o); }),
              testing::MatchesRegex("the loss is not finite on rank [01] in step [1-4]: .*"));
}

TEST_F(Policies, StepWithNanLossIsSkippedOnRequest) {
  use(with_a_bad_sample(64));
  TrainOptions o;
  o.batch = 8;
  o.epochs = 3;
  o.on_nan = OnNan::skip;
  o.optimizer.name = "adamw";
  o.report_directory = dir_;
  const auto result = run(2, o);
  EXPECT_THAT(said_, testing::ContainsRegex(
                         "step [0-9]+: update skipped: the loss is not finite on rank [01]\n"));
  EXPECT_EQ(result.step, 12);
  EXPECT_TRUE(std::isfinite(result.train_loss));
  EXPECT_TRUE(std::isfinite(result.evaluation.loss));
  EXPECT_TRUE(all_ranks_agree());
  for (const auto& [name, value] : states_[0]) {
    EXPECT_TRUE(value.to(torch::kFloat32).isfinite().all().item<bool>())
        << name << "; running means must be finite, too";
  }
}

// The derivative of the square root at 0 is infinite, but its value is not.
TEST_F(Policies, NonFiniteGradientIsSkipped) {
  TrainOptions o;
  o.batch = 16;
  o.on_nan = OnNan::skip;
  std::atomic<int> calls = 0;
  run(2, o, [&](const torch::Tensor& scores) {
    if (calls++ > 0) return scores;
    return scores + (scores - scores.detach()).abs().sqrt();
  });
  EXPECT_THAT(said_, HasSubstr("step 1: update skipped: a gradient is not finite\n"));
  EXPECT_TRUE(all_ranks_agree());
  EXPECT_TRUE(states_[0].at("1.weight").isfinite().all().item<bool>());
}

TEST_F(Policies, BatchesTooSmallForTheirNormalizationAreNamed) {
  TrainOptions o;
  o.batch = 1;
  EXPECT_EQ(error_of([&] { run(2, o); }),
            "batch normalization needs more than one value per channel to train, and a micro-batch "
            "on a rank has 1 sample; use a larger --batch, or a larger --global-batch or fewer "
            "ranks");
  o.global_batch = 4;
  o.blocks = 4;
  EXPECT_THAT(error_of([&] { run(2, o); }),
              HasSubstr("and a block has 1 sample; use fewer --blocks or a larger --global-batch"));
}

TEST_F(Policies, RunThatNeverUpdatesStops) {
  TrainOptions o;
  o.batch = 2;
  o.epochs = 4;
  o.on_nan = OnNan::skip;
  const auto text =
      error_of([&] { run(2, o, [](const torch::Tensor& scores) { return scores / 0.0; }); });
  EXPECT_THAT(
      text,
      HasSubstr("the updates of 50 steps in a row were skipped, most recently because the loss "
                "is not finite on ranks 0 and 1"));
}

double saved_loss_scale(const fs::path& checkpoint) {
  std::ifstream file(checkpoint / "manifest.json");
  return nlohmann::json::parse(file).at("state").at("position").at("loss_scale").get<double>();
}

TEST_F(Policies, LossScalingIsBitwiseNeutralAndContinuesAfterAResume) {
  TrainOptions o;
  o.batch = 16;
  const auto plain = run(2, o);
  o.loss_scale = 1024;  // a power of two: exact
  EXPECT_EQ(run(2, o).parameters_crc32c, plain.parameters_crc32c);

  o.checkpoint.directory = dir_;
  o.steps = 1;
  std::atomic<int> calls = 0;
  const auto overflowed = run(2, o, [&](const torch::Tensor& scores) {
    if (calls++ == 0) scores.register_hook([](const torch::Tensor& g) { return g * 1e38; });
    return scores;
  });
  EXPECT_THAT(said_, HasSubstr("step 1: update skipped: the gradients overflowed with a loss scale "
                               "of 1024, which is now 512\n"));
  EXPECT_TRUE(all_ranks_agree());
  EXPECT_EQ(saved_loss_scale(overflowed.checkpoint), 512);
  o.steps = 2;
  EXPECT_EQ(saved_loss_scale(run(2, o).checkpoint), 512)
      << "must not be the initial scale of a new run";
}

// Some held-out samples have the wrong class, so a model that becomes too confident gets worse.
TEST_F(Policies, StopsEarlyAndKeepsTheBest) {
  auto wrong = points(32);
  wrong.targets.slice(0, 0, 6).bitwise_xor_(1);
  evaluation_ = std::make_shared<data::TensorDataset>(wrong.inputs, wrong.targets, 2);
  TrainOptions o;
  o.batch = 32;
  o.epochs = 50;
  o.patience = 3;
  o.optimizer.learning_rate = 0.3;
  o.checkpoint.directory = dir_;
  o.checkpoint.keep_last = 1;
  o.checkpoint.keep_best = true;
  const auto first = run(2, o);
  EXPECT_TRUE(first.stopped_early);
  EXPECT_LT(first.step, 50);
  EXPECT_GT(first.step, o.patience + 1) << "the best evaluation must improve more than once";
  EXPECT_THAT(said_, HasSubstr("stopped early: no better evaluation than"));
  // The best checkpoint is three epochs before the end, and is the only one in its directory.
  const auto best = dir_ / "best";
  EXPECT_EQ(first.best_checkpoint, best / fmt::format("step-{:08}", first.step - o.patience));
  EXPECT_TRUE(fs::exists(first.best_checkpoint / "manifest.json"));
  EXPECT_EQ(std::count_if(fs::directory_iterator(best), {},
                          [](const auto& e) { return e.is_directory(); }),
            1);
  // A resumed run has nothing left to do, but still knows which evaluation was the best.
  const auto again = run(2, o);
  EXPECT_EQ(again.step, first.step);
  EXPECT_EQ(again.parameters_crc32c, first.parameters_crc32c);
}

// All samples have the right class soon, but the loss falls until the end.
TEST_F(Policies, PatienceFollowsTheChosenMetric) {
  TrainOptions o;
  o.batch = 32;
  o.epochs = 20;
  o.patience = 3;
  o.optimizer.learning_rate = 0.3;
  o.checkpoint.directory = dir_;
  o.checkpoint.best_metric = "accuracy";
  const auto first = run(2, o);
  EXPECT_TRUE(first.stopped_early);
  EXPECT_LT(first.step, 20);
  EXPECT_THAT(said_, HasSubstr("stopped early: no better evaluation than accuracy 1.0000 for 3"));
  EXPECT_EQ(run(2, o).step, first.step) << "a resumed run has nothing left to do";
  o.checkpoint.best_metric = "loss";
  EXPECT_FALSE(run(2, o).stopped_early);
}

TEST_F(Policies, DryRunDoesOneStepAndWritesNothing) {
  TrainOptions o;
  o.batch = 4;
  o.epochs = 3;
  o.dry_run = true;
  o.checkpoint.directory = dir_;
  o.report_directory = dir_;
  const auto result = run(2, o);
  EXPECT_EQ(result.step, 1);
  EXPECT_EQ(result.planned_steps, 24);
  EXPECT_EQ(result.evaluation.targets, 8) << "must be one batch per rank";
  EXPECT_TRUE(fs::is_empty(dir_));
}

// Trains 3 steps on 4 ranks, 2 on 3 ranks, and the rest of the epoch on 2, with loader threads that
// read ahead.
TEST_F(Policies, EverySampleIsUsedOnceIfTheWorldSizeChangesInAnEpoch) {
  TrainOptions o;
  o.batch = 2;
  o.loader_threads = 3;
  o.checkpoint.directory = dir_;
  use(points(3 * 8 + 2 * 6 + 7 * 4));
  o.steps = 3;
  EXPECT_EQ(run(4, o).step, 3);
  const auto drawn = train_->drawn();
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 1), 24);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), 0), 40);
  o.steps = 5;
  EXPECT_EQ(run(3, o).step, 5);
  o.steps = 0;
  EXPECT_EQ(run(2, o).step, 12);
  EXPECT_EQ(train_->drawn(), std::vector<int>(64, 1));
}

TEST(BestEvaluation, CountsEvaluationsSinceTheBest) {
  BestValue best;
  EXPECT_FALSE(best.record(std::numeric_limits<double>::quiet_NaN()));
  EXPECT_FALSE(best.cost.has_value());
  EXPECT_TRUE(best.record(2));
  EXPECT_EQ(best.epochs_since, 0);
  EXPECT_FALSE(best.record(2)) << "an equal value is not better";
  EXPECT_FALSE(best.exhausted(2));
  EXPECT_FALSE(best.record(3));
  EXPECT_TRUE(best.exhausted(2));
  EXPECT_FALSE(best.exhausted(0));
  EXPECT_TRUE(best.record(1));
  EXPECT_FALSE(best.exhausted(2));
}

TEST(BestEvaluation, KeepsTheBestOfEachMetric) {
  BestEvaluation best;
  EXPECT_TRUE(best.record({.loss = 1, .accuracy = 0.5}, BestMetric::accuracy));
  EXPECT_FALSE(best.record({.loss = 0.9, .accuracy = 0.4}, BestMetric::accuracy));
  EXPECT_TRUE(best.record({.loss = 2, .accuracy = 0.6}, BestMetric::accuracy));
  EXPECT_FALSE(best.record({.loss = 2, .accuracy = 0.7}, BestMetric::loss));
  EXPECT_EQ(best.by(BestMetric::loss).cost, 0.9);
  EXPECT_EQ(best.by(BestMetric::loss).epochs_since, 2);
  EXPECT_EQ(best.by(BestMetric::accuracy).cost, -0.7);
  EXPECT_EQ(best.by(BestMetric::accuracy).epochs_since, 0);
}

TEST(RunTable, ShowsTheOptions) {
  TrainOptions o;
  o.batch = 8;
  o.micro_batches = 2;
  o.epochs = 3;
  o.scale_learning_rate = true;
  o.warmup_steps = 1000;
  o.schedule = Schedule::cosine;
  o.clip_norm = 1;
  const RunHeader header{"ddp-train 9", "gpt", 1234567, "text:book", 34000, 3700, 4, "mpi", 2};
  const auto table = run_table(header, o);
  for (const char* line :
       {"ddp-train 9\n", "  model          gpt, 1,234,567 parameters\n",
        "  data           text:book, 34,000 samples for training, 3,700 for evaluation\n",
        "  ranks          4 over mpi, 2 threads each\n",
        "  batch          global batch 64: 8 x 2 micro-batches x 4 ranks\n",
        "  length         3 epochs of 531 steps\n",
        "  learning rate  0.05 x 8, after 1,000 steps of warm-up, cosine to 0\n",
        "  optimizer      sgd, momentum 0.9, gradients clipped to norm 1\n"}) {
    EXPECT_THAT(table, HasSubstr(line));
  }
  EXPECT_THAT(table, testing::Not(HasSubstr("checkpoints"))) << "options that are off are left out";
  o.epochs = 0;
  EXPECT_THAT(run_table(header, o), HasSubstr("  length         1 epoch of 531 steps\n"));
  o.steps = 2000;
  EXPECT_THAT(run_table(header, o),
              HasSubstr("  length         2,000 steps, epochs of 531 steps\n"));
  o.micro_batches = 1;
  o.global_batch = 96;
  o.blocks = 12;
  for (const char* line :
       {"global batch 96: 12 blocks of 8, 3 for each of 4 ranks; the same on 1, 2, 3, 4, 6 or 12 "
        "ranks\n",
        "0.05 x 12,"}) {
    EXPECT_THAT(run_table(header, o), HasSubstr(line));
  }
  o.evaluate_only = true;
  o.ema_decay = 0.9;
  EXPECT_EQ(run_table(header, o),
            "ddp-train 9: an evaluation\n"
            "  model          gpt, 1,234,567 parameters\n"
            "  data           text:book, 34,000 samples for training, 3,700 for evaluation\n"
            "  ranks          4 over mpi, 2 threads each\n"
            "  precision      fp32\n"
            "  weights        their average (--ema)\n");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(-1000), "-1,000");
}

}  // namespace
}  // namespace ddp::train
