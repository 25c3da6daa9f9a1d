// SPDX-License-Identifier: Apache-2.0
// Ranks as threads: compares the averaged gradients with those of one process that sees all the
// data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <barrier>
#include <cmath>
#include <mutex>

#include "base/errors.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "tests/unit/error_of.h"
#include "tests/unit/modules.h"

namespace ddp {
namespace {

using testing::HasSubstr;

torch::nn::Sequential make_net() {
  return torch::nn::Sequential(torch::nn::Linear(6, 9), torch::nn::ReLU(), torch::nn::Linear(9, 7),
                               torch::nn::ReLU(), torch::nn::Linear(7, 3));
}

torch::nn::Sequential make_seeded_net() {
  return test::seeded(make_net);
}

struct Data {
  torch::Tensor inputs;
  torch::Tensor targets;

  Data part(int index, int parts) const {
    const auto n = inputs.size(0) / parts;
    return {inputs.narrow(0, index * n, n), targets.narrow(0, index * n, n)};
  }
};

Data make_data(std::int64_t samples) {
  torch::manual_seed(11);
  return {torch::randn({samples, 6}), torch::randint(0, 3, {samples}, torch::kInt64)};
}

torch::Tensor loss_of(torch::nn::Sequential& net, const Data& data) {
  const auto scores = net->forward(test::on_test_device(data.inputs));
  return torch::nn::functional::cross_entropy(scores, test::on_test_device(data.targets));
}

std::vector<torch::Tensor> values_of(const torch::nn::Sequential& net) {
  return test::on_cpu(net->parameters());
}

torch::optim::SGD make_optimizer(const torch::nn::Sequential& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
}

// Trains `steps` steps on `ranks` ranks with `micro_batches` each; returns rank 0's parameters.
std::vector<torch::Tensor> train(int ranks, int micro_batches, int steps, const Data& data,
                                 BucketLimits limits) {
  std::vector<torch::Tensor> result;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = make_seeded_net();
    DistributedDataParallel replica(*net, group, {.buckets = limits});
    auto optimizer = make_optimizer(net);
    for (int s = 0; s < steps; ++s) {
      auto step = replica.begin_step(micro_batches);
      for (int m = 0; m < micro_batches; ++m) {
        step.backward(loss_of(net, data.part(m * ranks + group.rank(), ranks * micro_batches)));
      }
      step.apply(optimizer);
    }
    if (group.rank() == 0) result = values_of(net);
  });
  return result;
}

void expect_equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
}

void expect_close(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(torch::allclose(a[i], b[i], 1e-5, 1e-6)) << i;
  }
}

class DataParallel : public testing::Test {
 protected:
  void SetUp() override { torch::set_num_threads(1); }
  const Data data_ = make_data(48);
  // Small enough for several buckets.
  const BucketLimits limits_{64, 200};
};

TEST_F(DataParallel, TwoRanksEqualTwoAccumulatedMicroBatchesBitwise) {
  expect_equal(train(2, 1, 10, data_, limits_), train(1, 2, 10, data_, limits_));
}

TEST_F(DataParallel, ResultDoesNotDependOnTheNumberOfRanks) {
  const auto alone = train(1, 1, 10, data_, limits_);
  for (const int ranks : {2, 3, 4}) expect_close(train(ranks, 1, 10, data_, limits_), alone);
  expect_close(train(2, 3, 10, data_, limits_), alone);
}

TEST_F(DataParallel, BucketSizeDoesNotChangeTheResult) {
  expect_equal(train(2, 1, 5, data_, {1, 1}), train(2, 1, 5, data_, {1 << 20, 1 << 20}));
}

TEST_F(DataParallel, GradientsLieInTheBucketsAndSurviveZeroGrad) {
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = make_seeded_net();
    DistributedDataParallel replica(*net, group, {.buckets = limits_});
    EXPECT_GT(replica.bucket_count(), 2U);
    auto optimizer = make_optimizer(net);
    for (int s = 0; s < 3; ++s) {
      optimizer.zero_grad();  // calls detach_() on the gradients, which throws for views
      auto step = replica.begin_step();
      step.backward(loss_of(net, data_.part(group.rank(), 2)));
      step.apply(optimizer);
      for (const auto& p : net->parameters()) EXPECT_FALSE(p.grad().is_view());
    }
    // On a device, the collectives may not have ended yet.
    EXPECT_LE(replica.communication().size(), replica.bucket_count());
    if (!test::on_device()) {
      EXPECT_EQ(replica.communication().size(), replica.bucket_count());
    }
  });
}

// An error in a hook must not crash the program: backward() throws it.
std::string error_of_step(
    const std::function<void(DistributedDataParallel&, torch::nn::Sequential&)>& use) {
  return error_of([&] {
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = make_seeded_net();
      DistributedDataParallel replica(*net, group);
      use(replica, net);
    });
  });
}

TEST_F(DataParallel, ParameterWithoutGradientIsNamed) {
  const auto text =
      error_of_step([&](DistributedDataParallel& replica, torch::nn::Sequential& net) {
        auto step = replica.begin_step();
        // The forward pass skips the last layer.
        const auto hidden =
            net->ptr<torch::nn::LinearImpl>(0)->forward(test::on_test_device(data_.inputs));
        step.backward(net->ptr<torch::nn::LinearImpl>(2)->forward(hidden).sum());
      });
  EXPECT_THAT(text, HasSubstr("no gradient for 2 of 6 parameters (4.weight, 4.bias)"));
}

TEST_F(DataParallel, OptimizerStepOnUnreducedGradientsIsRefused) {
  const auto text =
      error_of_step([&](DistributedDataParallel& replica, torch::nn::Sequential& net) {
        auto optimizer = make_optimizer(net);
        auto step = replica.begin_step(2);
        step.backward(loss_of(net, data_));
        step.apply(optimizer);
      });
  EXPECT_THAT(text, HasSubstr("1 of its 2 micro-batches"));
}

TEST_F(DataParallel, MoreBackwardsThanAnnouncedAreRefused) {
  const auto text =
      error_of_step([&](DistributedDataParallel& replica, torch::nn::Sequential& net) {
        auto step = replica.begin_step();
        step.backward(loss_of(net, data_));
        step.backward(loss_of(net, data_));
      });
  EXPECT_THAT(text, HasSubstr("more than the 1 time"));
}

TEST_F(DataParallel, FrozenParametersAreIgnored) {
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = make_seeded_net();
    for (auto& p : net->ptr<torch::nn::LinearImpl>(0)->parameters()) p.requires_grad_(false);
    const auto before = values_of(net);
    DistributedDataParallel replica(*net, group, {.buckets = limits_});
    auto optimizer = make_optimizer(net);
    auto step = replica.begin_step();
    step.backward(loss_of(net, data_.part(group.rank(), 2)));
    step.apply(optimizer);
    const auto after = values_of(net);
    EXPECT_TRUE(torch::equal(before[0], after[0]));
    EXPECT_FALSE(torch::equal(before[2], after[2]));
  });
}

TEST_F(DataParallel, ExceptionInForwardOnOneRankStopsAll) {
  const auto text =
      error_of_step([&](DistributedDataParallel& replica, torch::nn::Sequential& net) {
        for (int s = 0; s < 3; ++s) {
          if (s == 1 && replica.group().rank() == 1) throw std::runtime_error("bad sample 17");
          auto step = replica.begin_step();
          step.backward(loss_of(net, data_));
        }
      });
  EXPECT_EQ(text, "bad sample 17");
}

TEST_F(DataParallel, LossMustBeOneNumberWithAGraph) {
  using Loss = std::function<torch::Tensor(torch::nn::Sequential&)>;
  const auto error = [&](int ranks, const Loss& loss) {
    return error_of([&] {
      test::run_ranks(ranks, [&](comm::Group& group) {
        auto net = make_seeded_net();
        DistributedDataParallel replica(*net, group, {.check_loss = false});
        auto optimizer = make_optimizer(net);
        replica.begin_step().backward_and_apply(loss(net), optimizer);
      });
    });
  };
  for (const int ranks : {1, 2}) {
    EXPECT_THAT(error(ranks,
                      [&](auto& net) {
                        return loss_of(net, data_).expand({2, 3});
                      }),
                HasSubstr("must be one number, the mean over the micro-batch, not a tensor of "
                          "shape [2, 3]"));
    EXPECT_THAT(error(ranks, [](auto&) { return torch::Tensor(); }),
                HasSubstr("the loss is undefined"));
    EXPECT_THAT(error(ranks,
                      [&](auto& net) {
                        const torch::NoGradGuard no_grad;
                        return loss_of(net, data_);
                      }),
                HasSubstr("was computed under torch::NoGradGuard"));
    EXPECT_EQ(error(ranks, [&](auto& net) { return loss_of(net, data_).reshape({1, 1}); }), "");
  }
}

// The first layer's hook fails when other gradients are on their way.
void fail_in_backward(torch::nn::Sequential& net) {
  net->ptr<torch::nn::LinearImpl>(0)->weight.register_hook(
      [](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("out of memory"); });
}

TEST_F(DataParallel, NoStepFollowsAnErrorInBackward) {
  using Call = std::function<void(DistributedDataParallel&)>;
  const std::vector<Call> calls = {
      [](DistributedDataParallel& replica) { replica.begin_step(); },
      [](DistributedDataParallel& replica) { replica.begin_uneven_step(true); },
      [](DistributedDataParallel& replica) { replica.require_same_parameters(); }};
  test::allow_device_problems();  // tensors of collectives that have not ended are dropped
  for (const auto& call : calls) {
    std::array<std::string, 2> caught;
    std::barrier both(2);
    const auto text = error_of([&] {
      test::run_ranks(2, [&](comm::Group& group) {
        auto net = make_seeded_net();
        DistributedDataParallel replica(*net, group, {.buckets = limits_});
        replica.begin_step().backward(loss_of(net, data_));
        fail_in_backward(net);
        auto step = replica.begin_step();
        auto& error = caught.at(static_cast<std::size_t>(group.rank()));
        error = error_of([&] { step.backward(loss_of(net, data_)); });
        both.arrive_and_wait();
        call(replica);
      });
    });
    for (const auto& error : caught) EXPECT_EQ(error, "out of memory");
    EXPECT_THAT(text, HasSubstr("the backward pass of step 2 ended with an error before all "
                                "gradients were averaged"));
  }
}

// A collective of the rank that failed would wait for the others.
TEST_F(DataParallel, RankThatFailedInBackwardCallsNoCollective) {
  test::allow_device_problems();
  const auto text = error_of([&] {
    test::run_ranks(2,
                    [&](comm::Group& group) {
                      auto net = make_seeded_net();
                      DistributedDataParallel replica(*net, group, {.buckets = limits_});
                      if (group.rank() == 1) fail_in_backward(net);
                      auto step = *replica.begin_uneven_step(true);
                      if (group.rank() == 0) return step.backward(loss_of(net, data_));
                      EXPECT_EQ(error_of([&] { step.backward(loss_of(net, data_)); }),
                                "out of memory");
                      replica.begin_uneven_step(true);
                    },
                    {.limits = {.timeout = std::chrono::seconds(10)}});
  });
  EXPECT_THAT(text, HasSubstr("the backward pass of step 1 ended with an error"));
}

// Nothing is on its way: the program may leave the step out.
TEST_F(DataParallel, StepMayFollowAnErrorThatAllRanksReport) {
  if (test::on_device()) GTEST_SKIP() << "a device finds the loss in the next step";
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = make_seeded_net();
    DistributedDataParallel replica(*net, group, {.buckets = limits_});
    auto optimizer = make_optimizer(net);
    for (int s = 0; s < 4; ++s) {
      const double scale = s == 1 && group.rank() == 1 ? std::nan("") : 1;
      const auto text = error_of([&] {
        auto step = replica.begin_step();
        step.backward(loss_of(net, data_.part(group.rank(), 2)) * scale);
        step.apply(optimizer);
      });
      EXPECT_EQ(text.empty(), s != 1) << text;
    }
    replica.require_same_parameters();
  });
}

TEST_F(DataParallel, SingleRankMayContinueAfterAnErrorInBackward) {
  test::run_ranks(1, [&](comm::Group& group) {
    auto net = make_seeded_net();
    DistributedDataParallel replica(*net, group, {.buckets = limits_});
    auto& weight = net->ptr<torch::nn::LinearImpl>(0)->weight;
    const auto hook = weight.register_hook(
        [](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("out of memory"); });
    EXPECT_THROW(replica.begin_step().backward(loss_of(net, data_)), std::runtime_error);
    weight.remove_hook(hook);
    replica.begin_step().backward(loss_of(net, data_));
    EXPECT_TRUE(weight.grad().defined());
  });
}

TEST_F(DataParallel, StepIsOverWhenAnotherOneBegins) {
  const auto use_old = [&](const std::function<void(GradientStep&, torch::nn::Sequential&)>& use) {
    return error_of_step([&](DistributedDataParallel& replica, torch::nn::Sequential& net) {
      auto old = replica.begin_step();
      replica.begin_step();
      use(old, net);
    });
  };
  const auto over = HasSubstr("step 1 is over, because begin_step() has begun step 2");
  EXPECT_THAT(use_old([&](GradientStep& old, auto& net) { old.backward(loss_of(net, data_)); }),
              over);
  EXPECT_THAT(use_old([](GradientStep& old, auto&) { old.without_data(); }), over);
  EXPECT_THAT(error_of_step([&](DistributedDataParallel& replica, torch::nn::Sequential& net) {
                auto optimizer = make_optimizer(net);
                auto old = replica.begin_step();
                old.backward(loss_of(net, data_));
                replica.begin_step();
                old.apply(optimizer);
              }),
              over);
}

TEST_F(DataParallel, AveragedGradientsAreNotSummedAgain) {
  EXPECT_THAT(error_of_step([&](DistributedDataParallel& replica, torch::nn::Sequential& net) {
                auto step = replica.begin_step();
                step.backward(loss_of(net, data_));
                step.without_data();
              }),
              HasSubstr("without_data() was called after the gradients of the step were averaged"));
}

}  // namespace
}  // namespace ddp
