// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks have stages of the model: initial values, memory, the bits of a whole model, and
// checkpoints, on CPUs and on a device.
#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <mutex>
#include <string>

#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/parallel/tensors/flat_memory.h"
#include "ddp_runtime/train/ranks/step_boundary.h"
#include "ddp_runtime/train/stages/staged_model.h"
#include "tests/unit/error_of.h"
#include "tests/unit/train/small_runs.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;

models::ModelOptions small_model() {
  return {.name = "mlp", .input = {1, 4, 4}, .classes = 2, .width = 24, .layers = 5};
}

models::ModelOptions small_text() {
  models::ModelOptions options;
  options.name = "gpt";
  options.input = {6};
  options.classes = 11;
  options.width = 8;
  options.layers = 3;
  options.heads = 2;
  options.tokens = true;
  return options;
}

// As test::seeded() does. What has no memory stays where it is.
BuildModel building(const models::ModelOptions& options) {
  return [options](const std::function<void(torch::nn::Module&)>& built) {
    const std::lock_guard lock(test::mutex_of_seeds());
    torch::manual_seed(5);
    auto own = options;
    own.built = [&](torch::nn::Module& unit) {
      test::move_to_test_device(unit);
      built(unit);
    };
    return test::on_test_device(models::make_model(own));
  };
}

data::Batch some_images() {
  return {torch::ones({4, 1, 4, 4}), torch::zeros({4}, torch::kInt64)};
}

struct Layout {
  int ranks;
  StageOptions stages = {};
};

StageOptions stages(int ranks, int chunks = 1, const std::string& balance = "parameters") {
  const auto schedule =
      chunks > 1 ? pipeline::Schedule::interleaved : pipeline::Schedule::one_f_one_b;
  return {ranks, schedule, chunks, balance};
}

class StagedTraining : public SmallRuns {
 protected:
  StagedTraining() {
    test::allow_collectives_at_once(8);
    options_.batch = 2;
    options_.micro_batches = 4;
  }
  // The checksum of the parameters.
  std::uint32_t train_layout(const Layout& layout, std::int64_t steps,
                             const std::string& directory = "") {
    std::uint32_t checksum = 0;
    test::run_ranks(layout.ranks, [&](comm::Group& group) {
      auto options = options_;
      options.stages = layout.stages;
      options.steps = steps;
      if (!directory.empty()) options.checkpoint.directory = temporary_.path() / directory;
      std::shared_ptr<StagedModel> staged;
      if (options.stages.wanted()) {
        staged = std::make_shared<StagedModel>(group, options.stages, building(small_model()),
                                               some_images, test::test_device());
      }
      const auto model =
          staged ? staged->model() : test::seeded([] { return models::make_model(small_model()); });
      TrainTask task{
          "test", "test", "mlp", *model, [&](const torch::Tensor& x) { return model->forward(x); },
          data_};
      task.staged = staged;
      task.callbacks = callbacks_;
      Trainer trainer(group, task, options);
      const auto result = trainer.fit();
      if (group.rank() != 0) return;
      checksum = result.parameters_crc32c;
      loss_ = result.evaluation.loss;
      train_loss_ = result.train_loss;
    });
    return checksum;
  }

  double train_loss_ = 0;
  Callbacks callbacks_;
};

TEST_F(StagedTraining, HasTheBitsOfAWholeModel) {
  const auto expected = train_layout({1}, 6, "whole");
  const double loss = loss_;
  const double train_loss = train_loss_;
  for (const auto& layout : {Layout{2, stages(2)}, Layout{2, stages(2, 2)}, Layout{2, stages(2, 3)},
                             Layout{3, stages(3, 1, "1,1,4")}, Layout{4, stages(4)}}) {
    if (test::on_device() && layout.ranks > 2) continue;  // slow there
    const auto name = std::to_string(layout.ranks) + "x" + std::to_string(layout.stages.chunks);
    EXPECT_EQ(train_layout(layout, 3, name), train_layout({1}, 3)) << name;
    EXPECT_EQ(train_layout(layout, 6, name), expected) << name;
    EXPECT_EQ(loss_, loss) << name;
    EXPECT_EQ(train_loss_, train_loss) << name;
    EXPECT_TRUE(saved(name) == saved("whole")) << name;
  }
}

// Receives a stop signal when the first batch is read.
class StoppingData final : public data::Dataset {
 public:
  explicit StoppingData(std::shared_ptr<const data::Dataset> data) : data_(std::move(data)) {}
  std::int64_t size() const override { return data_->size(); }
  data::SampleShape shape() const override { return data_->shape(); }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    if (stops && reads++ == 0) raise(SIGUSR2);
    return data_->get(indices);
  }
  mutable std::atomic<int> reads = 0;
  std::atomic<bool> stops = true;

 private:
  std::shared_ptr<const data::Dataset> data_;
};

// A pass has eight batches, and two ranks read each of the 32.
TEST_F(StagedTraining, AStopInAnEvaluationIsAnsweredAfterOneMorePass) {
  const auto stopping = std::make_shared<StoppingData>(data_.evaluation);
  const Layout layout{2, stages(2)};
  const auto expected = train_layout(layout, 8, "whole");
  const double loss = loss_;
  data_.evaluation = stopping;
  train_layout(layout, 8, "stopped");
  EXPECT_LE(stopping->reads, 32)
      << "out of 64, or 16 if a rank starts the first pass after the signal";
  StopSignals::forget();
  stopping->stops = false;
  EXPECT_EQ(train_layout(layout, 8, "stopped"), expected);
  EXPECT_EQ(loss_, loss);
}

TEST_F(StagedTraining, PipelinesHaveTheBitsOfRanksWithWholeModels) {
  const auto expected = train_layout({2}, 6, "whole");
  EXPECT_EQ(train_layout({4, stages(2)}, 3, "staged"), train_layout({2}, 3));
  EXPECT_EQ(train_layout({4, stages(2)}, 6, "staged"), expected);
  EXPECT_TRUE(saved("staged") == saved("whole"));
}

// Of each parameter and buffer, the ranks that have it.
TEST_F(StagedTraining, EachRankHasTheInitialValuesOfItsStagesOnly) {
  const auto whole = test::seeded([] { return models::make_model(small_text()); });
  test::run_ranks(2, [&](comm::Group& group) {
    const StagedModel staged(group, stages(2, 1, "2,3"), building(small_text()), {},
                             test::test_device());
    const auto expected = whole->named_parameters();
    std::size_t here = 0;
    for (const auto& parameter : staged.model()->named_parameters()) {
      const auto& name = parameter.key();
      const bool first = name.starts_with("tokens") || name.starts_with("positions") ||
                         name.starts_with("blocks.0");
      const bool is_here = name.starts_with("tokens") || (group.rank() == 0 ? first : !first);
      EXPECT_EQ(!is_without_memory(parameter.value()), is_here) << name;
      EXPECT_EQ(parameter->sizes(), expected[name].sizes());
      EXPECT_EQ(parameter->device(), test::test_device());
      if (!is_here) continue;
      ++here;
      EXPECT_TRUE(torch::equal(parameter->cpu(), expected[name].cpu())) << name;
    }
    EXPECT_GT(here, 0U);
    const auto tied = staged.tied();
    ASSERT_EQ(tied.size(), 1U);
    EXPECT_EQ(tied[0][0].name, "tokens.weight");
    EXPECT_EQ(tied[0][1].stage, 1);
  });
}

TEST_F(StagedTraining, AStepThatIsNotFiniteIsSkippedByAllStages) {
  options_.on_nan = OnNan::skip;
  options_.optimizer = {"sgd", 1e30, 0.9, 0};
  const auto expected = train_layout({1}, 5);
  EXPECT_EQ(train_layout({2, stages(2)}, 5), expected);
}

TEST_F(StagedTraining, ARankThatIsLostBetweenStepsIsNamedWithItsStages) {
  callbacks_.after_step = [](const StepEvent& event) {
    if (event.step == 2) throw PeerFailure(1, "rank 1 is gone", /*lost=*/true);
  };
  EXPECT_EQ(error_of([&] {
              train_layout({2, stages(2, 2)}, 3);
            }),
            "rank 1 is gone; it ran stages 1 and 3 of the pipeline in step 2");
}

class Uncuttable final : public models::Model {
 public:
  torch::Tensor forward(const torch::Tensor& x) override { return x; }
};

TEST_F(StagedTraining, RefusesAModelWithoutPieces) {
  test::run_ranks(2, [](comm::Group& group) {
    const auto build = [](const auto&) { return std::make_shared<Uncuttable>(); };
    EXPECT_THAT(error_of([&] { StagedModel(group, stages(2), build, {}); }),
                HasSubstr("the model cannot be cut into stages (--stages)"));
  });
}

TEST_F(StagedTraining, BalancesMeasuredTimes) {
  if (test::on_device()) GTEST_SKIP() << "pieces are measured on CPUs";
  test::run_ranks(2, [](comm::Group& group) {
    const StagedModel staged(group, stages(2, 1, "time"), building(small_model()), some_images);
    std::vector<double> times;
    for (const auto& piece : staged.plan().pieces) times.push_back(piece.seconds);
    EXPECT_THAT(times, testing::Each(testing::Gt(0)));
    EXPECT_EQ(staged.plan().balance, pipeline::balanced(times, 2));
    auto same = times;
    group.broadcast(comm::buffer_of(std::span(same)), 0).wait();
    EXPECT_EQ(same, times) << "all ranks have the same balance";
  });
}

}  // namespace
}  // namespace ddp::train
