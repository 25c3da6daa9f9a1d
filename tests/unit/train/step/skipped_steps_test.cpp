// SPDX-License-Identifier: Apache-2.0
// Which steps skip their update, and what a skipped step leaves. Losses and gradients are spoiled
// one by one; on a device, the host learns the result in the next step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp_runtime/train/step/loss_watch.h"
#include "tests/unit/error_of.h"
#include "tests/unit/test_device.h"
#include "tests/unit/train/rank_steps.h"

namespace ddp::train {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

enum class Spoiled { nothing, loss, gradients };

// What is spoiled in a micro-batch of a rank, which are numbered from 1.
using Spoil = std::function<Spoiled(int rank, int micro_batch)>;

struct SpoiledModel {
  SpoiledModel(int rank, Spoil what)
      : net(torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2)),
        objective{[this](const torch::Tensor& x) { return net->forward(x); },
                  [this, rank, what = std::move(what)](const auto& outputs, const auto& targets) {
                    return loss(outputs, targets, what(rank, ++micro_batch));
                  }} {
    const torch::NoGradGuard no_grad;
    for (auto& p : net->parameters()) p.fill_(0.5);
    test::move_to_test_device(*net);
  }
  SpoiledModel(const SpoiledModel&) = delete;
  SpoiledModel& operator=(const SpoiledModel&) = delete;
  ~SpoiledModel() = default;

  // The loss alone is spoiled by a constant, which has no gradient.
  static torch::Tensor loss(const torch::Tensor& outputs, const torch::Tensor& targets,
                            Spoiled what) {
    if (what == Spoiled::gradients) {
      outputs.register_hook([](const torch::Tensor& g) { return g * 1e38 * 1e10; });
    }
    const auto mean = mean_cross_entropy(outputs, targets);
    return what == Spoiled::loss ? mean + std::numeric_limits<double>::infinity() : mean;
  }

  std::vector<torch::Tensor> state() const {
    auto all = test::on_cpu(net->parameters());
    for (const auto& buffer : test::on_cpu(net->buffers())) all.push_back(buffer);
    return all;
  }

  torch::nn::Sequential net;
  Objective objective;
  int micro_batch = 0;
};

data::Batch batch_of_points(int rank, std::int64_t number) {
  const auto inputs = torch::randn({8, 4}, torch::make_generator<torch::CPUGeneratorImpl>(
                                               static_cast<std::uint64_t>(100 * number + rank)));
  return {inputs, inputs.select(1, 0).gt(0).to(torch::kInt64)};
}

struct WithModel {
  SpoiledModel model;
};

// One rank's steps, which begin when the model has been made.
struct Steps : WithModel, RankSteps {
  Steps(comm::Group& group, const TrainOptions& options, const Spoil& what)
      : WithModel{{group.rank(), what}},
        RankSteps(
            group, *model.net, model.objective, options,
            [rank = group.rank()](std::int64_t number) { return batch_of_points(rank, number); }) {}
};

class SkippedSteps : public testing::Test {
 protected:
  SkippedSteps() {
    torch::set_num_threads(1);
    options_.on_nan = OnNan::skip;
    options_.optimizer.name = "adamw";
  }

  TrainOptions options_;
};

bool all_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return torch::equal(x, y); });
}

TEST_F(SkippedSteps, Fp16ScalesTheLossUnlessTheDeviceLacksIt) {
  options_.precision = amp::Precision::fp16;
  test::run_ranks(1, [&](comm::Group& group) {
    std::unique_ptr<Steps> steps;
    const auto error = error_of([&] {
      steps = std::make_unique<Steps>(group, options_, [](int, int) { return Spoiled::nothing; });
    });
    if (!steps) {
      EXPECT_THAT(error, HasSubstr("fp16 arithmetic is not supported on this device"));
      return;
    }
    ASSERT_NE(steps->step->scaler(), nullptr);
    EXPECT_EQ(steps->step->scaler()->scale(), 65536);
  });
}

// Running means included, whose new values would be finite.
TEST_F(SkippedSteps, ChangeNothing) {
  for (const auto what : {Spoiled::loss, Spoiled::gradients}) {
    for (const double scale : {0.0, 1024.0}) {
      options_.loss_scale = scale;
      test::run_ranks(2, [&](comm::Group& group) {
        Steps steps(group, options_, [&](int rank, int micro_batch) {
          return rank == 1 && micro_batch == 2 ? what : Spoiled::nothing;
        });
        steps.run(1);
        steps.settle();  // or the next step would begin with the running means of rank 0
        const auto before = steps.model.state();
        steps.run(1);
        EXPECT_TRUE(all_equal(steps.model.state(), before)) << scale;
        steps.run(1);
        const auto after = steps.model.state();
        for (std::size_t i = 0; i < before.size(); ++i) {
          EXPECT_FALSE(torch::equal(after[i], before[i])) << scale << " " << i;
        }
      });
    }
  }
}

// A loss may overflow where its gradients do not.
TEST_F(SkippedSteps, MayHaveFiniteGradients) {
  for (const double scale : {0.0, 1024.0}) {
    options_.loss_scale = scale;
    test::run_ranks(2, [&](comm::Group& group) {
      Steps steps(group, options_, [](int rank, int micro_batch) {
        return rank == 1 && micro_batch == 2 ? Spoiled::loss : Spoiled::nothing;
      });
      steps.run(4);
      steps.settle();
      EXPECT_THAT(steps.skipped, ElementsAre("step 2: the loss is not finite on rank 1"));
      if (scale == 0) return;
      EXPECT_EQ(steps.step->scaler()->state().scale, 512);
      EXPECT_EQ(steps.step->scaler()->state().updates_since_change, 2);
    });
  }
}

TEST_F(SkippedSteps, MayHaveOneBadMicroBatchOfSeveral) {
  options_.micro_batches = 3;
  for (const int bad : {4, 5, 6}) {
    test::run_ranks(2, [&](comm::Group& group) {
      Steps steps(group, options_, [&](int rank, int micro_batch) {
        return rank == 0 && micro_batch == bad ? Spoiled::loss : Spoiled::nothing;
      });
      steps.run(3);
      steps.settle();
      EXPECT_THAT(steps.skipped, ElementsAre("step 2: the loss is not finite on rank 0")) << bad;
    });
  }
}

TEST_F(SkippedSteps, NameEveryRankWithABadLoss) {
  test::run_ranks(3, [&](comm::Group& group) {
    Steps steps(group, options_, [](int rank, int micro_batch) {
      if (micro_batch == 1) return rank > 0 ? Spoiled::loss : Spoiled::nothing;
      return rank == 0 && micro_batch == 3 ? Spoiled::gradients : Spoiled::nothing;
    });
    steps.run(3);
    steps.settle();
    EXPECT_THAT(steps.skipped, ElementsAre("step 1: the loss is not finite on ranks 1 and 2",
                                           "step 3: a gradient is not finite"));
  });
}

// One good step among them is enough to continue.
TEST_F(SkippedSteps, StopARunOnlyInARow) {
  constexpr int kLimit = TrainingStep::kMaxLeftOut;
  test::run_ranks(2, [&](comm::Group& group) {
    Steps steps(group, options_, [](int, int micro_batch) {
      return micro_batch == kLimit ? Spoiled::nothing : Spoiled::loss;
    });
    steps.run(2 * kLimit - 1);
    steps.settle();
    EXPECT_EQ(steps.skipped.size(), 2U * kLimit - 2);
    EXPECT_THAT(error_of([&] {
                  steps.run(1);
                  steps.settle();
                }),
                HasSubstr("the updates of 50 steps in a row were skipped, most recently because "
                          "the loss is not finite on ranks 0 and 1"));
  });
}

TEST(LossWatch, WaitsForTheSlowestRank) {
  test::run_ranks(2, [](comm::Group& group) {
    LossWatch watch(group);
    for (const bool finite : {false, true}) {
      if (group.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      watch.ask(group.rank() == 0 || finite);
      EXPECT_EQ(watch.answer(), finite ? std::vector<int>{} : std::vector{1}) << group.rank();
    }
  });
}

// A hook that keeps a part of the gradients divides it by the scale.
TEST_F(SkippedSteps, LeaveTheNewScaleToTheHooksOfTheNextStep) {
  std::mutex mutex;
  std::vector<double> scales;
  options_.on_nan = OnNan::stop;
  options_.loss_scale = 1024;
  options_.parallel.hook = [&](GradientBucket& bucket) -> HookTask {
    if (bucket.group().rank() == 0) {
      const std::lock_guard lock(mutex);
      scales.push_back(bucket.loss_scale());
    }
    co_await bucket.all_reduce(bucket.tensor());
  };
  test::run_ranks(2, [&](comm::Group& group) {
    Steps steps(group, options_, [](int, int micro_batch) {
      return micro_batch == 2 ? Spoiled::gradients : Spoiled::nothing;
    });
    steps.run(4);
    steps.settle();
  });
  EXPECT_THAT(scales, ElementsAre(1024, 1024, 512, 512));
}

// Averages of gradients with different scales would mean nothing.
TEST_F(SkippedSteps, NeedTheSameScaleOnAllRanks) {
  options_.loss_scale = 1024;
  const auto error = error_of([&] {
    test::run_ranks(2, [&](comm::Group& group) {
      Steps steps(group, options_, [](int, int) { return Spoiled::nothing; });
      if (group.rank() == 1) steps.step->scaler()->restore({512, 0});
      steps.run(1);
    });
  });
  EXPECT_THAT(error, HasSubstr("the ranks are not in the same step"));
}

// ---- what an optimizer must be able to do

// An optimizer of libtorch knows neither masters nor flags.
std::string error_with_an_own_optimizer(const TrainOptions& options) {
  return error_of([&] {
    test::run_ranks(1, [&](comm::Group& group) {
      SpoiledModel model(0, {});
      profile::StepRecorder recorder;
      StepParts parts;
      parts.optimizer = [](torch::nn::Module& module) {
        return std::make_unique<torch::optim::AdamW>(module.parameters());
      };
      make_training_step({group, *model.net, model.objective, recorder}, options, std::move(parts));
    });
  });
}

TEST(OwnOptimizer, MustKeepMastersOfShortWeights) {
  TrainOptions options;
  options.precision = options.param_type = amp::Precision::bf16;
  EXPECT_THAT(error_with_an_own_optimizer(options),
              HasSubstr("the task's own optimizer does not support bf16 weights, which need "
                        "float32 masters; use SGD, Adam or AdamW of ddp::optim"));
}

TEST(OwnOptimizer, MustTakeTheFlagsOfADevice) {
  std::vector<TrainOptions> all(3);
  all[0].on_nan = OnNan::skip;
  all[1].loss_scale = 8;
  all[2].precision = amp::Precision::fp16;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto error = error_with_an_own_optimizer(all[i]);
    if (test::on_device()) {
      EXPECT_THAT(error, HasSubstr("the task's own optimizer does not support skipped steps and "
                                   "loss scaling on a GPU; use SGD, Adam or AdamW of ddp::optim"))
          << i;
    } else if (i < 2) {
      EXPECT_EQ(error, "") << i;
    }
  }
  EXPECT_EQ(error_with_an_own_optimizer({}), "");
}

}  // namespace
}  // namespace ddp::train
