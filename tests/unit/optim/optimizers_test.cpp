// SPDX-License-Identifier: Apache-2.0
// Our optimizers compute the bits of libtorch's.
#include "ddp_runtime/optim/optimizers.h"

#include <gtest/gtest.h>

#include <limits>
#include <sstream>

#include "pair_of_optimizers.h"

namespace ddp::optim {
namespace {

class Optimizers : public testing::TestWithParam<Recipe> {
 protected:
  void SetUp() override { torch::manual_seed(1); }
};

INSTANTIATE_TEST_SUITE_P(All, Optimizers, testing::ValuesIn(recipes()),
                         [](const auto& instance) { return instance.param.name; });

Tensors of_sizes(std::initializer_list<std::vector<std::int64_t>> sizes) {
  Tensors result;
  for (const auto& size : sizes) result.push_back(torch::randn(size));
  return result;
}

TEST_P(Optimizers, GiveTheSameBitsForAllLengths) {
  Tensors parameters;
  for (std::int64_t n = 0; n <= 100; ++n) parameters.push_back(torch::randn({n}));
  Twins twins(GetParam(), parameters);
  for (int i = 0; i < 4; ++i) {
    twins.set_random_gradients();
    twins.step();
  }
  twins.expect_same();
}

// Parameters and gradients in the middle of other memory, as in buckets and flat shards.
TEST_P(Optimizers, GiveTheSameBitsAtAllOffsets) {
  for (std::int64_t offset = 0; offset < 9; ++offset) {
    const auto memory = torch::randn({200});
    const auto window = memory.narrow(0, offset, 77).detach().requires_grad_(true);
    const auto copy = window.detach().clone().requires_grad_(true);
    const auto ours = GetParam().ours({window});
    const auto theirs = GetParam().theirs({copy});
    for (int i = 0; i < 3; ++i) {
      const auto bucket = torch::randn({200});
      window.mutable_grad() = bucket.narrow(0, 3 * offset + 1, 77);
      copy.mutable_grad() = window.grad().clone();
      ours->step();
      theirs->step();
    }
    EXPECT_TRUE(same_bits(window, copy)) << offset;
  }
}

TEST_P(Optimizers, GiveTheSameBitsOnSeveralThreads) {
  const int threads = torch::get_num_threads();
  torch::set_num_threads(3);
  // 33 elements more than a thread's minimum, so that parts end within parameters.
  Twins twins(GetParam(), of_sizes({{5}, {250, 331}, {0}, {32801}, {7, 3}, {40000}}));
  for (int i = 0; i < 3; ++i) {
    twins.set_random_gradients();
    twins.step();
  }
  torch::set_num_threads(threads);
  twins.expect_same();
}

TEST_P(Optimizers, GiveTheSameBitsForSpecialValues) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  constexpr float kHuge = std::numeric_limits<float>::max();
  const auto values = torch::tensor({0.0F, -0.0F, kInf, -kInf, kNan, kTiny, -kTiny, 1e-39F, kHuge,
                                     -kHuge, 1e-20F, 1e20F, 1.0F, -1.5F});
  const auto n = values.numel();
  // All pairs of a parameter and a gradient.
  Twins twins(GetParam(), {values.repeat({n}), values.repeat_interleave(n)});
  for (int i = 0; i < 3; ++i) {
    twins.set_gradient(0, values.repeat_interleave(n));
    twins.set_gradient(1, values.repeat({n}));
    twins.step();
    twins.expect_same();
  }
}

TEST_P(Optimizers, SkipParametersWithoutAGradient) {
  Twins twins(GetParam(), of_sizes({{10}, {20}, {30}}));
  for (int i = 0; i < 4; ++i) {
    twins.set_random_gradients();
    if (i != 2) twins.set_gradient(1, {});
    if (i == 1) twins.set_gradient(0, {});
    twins.step();
    twins.expect_same();
  }
}

TEST_P(Optimizers, FollowALearningRateThatChanges) {
  Twins twins(GetParam(), of_sizes({{33}, {4, 5}}));
  for (const double lr : {0.1, 0.05, 0.0, 0.2}) {
    for (auto* optimizer : {&twins.our_optimizer(), &twins.their_optimizer()}) {
      for (auto& group : optimizer->param_groups()) group.options().set_lr(lr);
    }
    twins.set_random_gradients();
    twins.step();
    twins.expect_same();
  }
}

// A flag on the CPU costs no wait, so the host decides, and a step that is made is the usual one.
TEST_P(Optimizers, SkipStepsWithAFlagOnTheCpu) {
  Twins twins(GetParam(), {torch::randn({33}), torch::randn({4, 5})});
  auto& optimizer = dynamic_cast<SkipsSteps&>(twins.our_optimizer());
  for (const bool skipped : {true, false, false, true, false}) {
    twins.set_random_gradients();
    optimizer.skip_next_step_if(torch::full({}, skipped ? 1.0F : 0.0F));
    twins.our_optimizer().step();
    optimizer.settle_step(skipped);
    if (!skipped) twins.their_optimizer().step();
    twins.expect_same();
  }
}

TEST_P(Optimizers, AcceptParametersAddedLater) {
  Twins twins(GetParam(), of_sizes({{33}}));
  twins.set_random_gradients();
  twins.step();
  const auto a = torch::randn({12}).requires_grad_(true);
  const auto b = a.detach().clone().requires_grad_(true);
  twins.our_optimizer().add_param_group(torch::optim::OptimizerParamGroup(Tensors{a}));
  twins.their_optimizer().add_param_group(torch::optim::OptimizerParamGroup(Tensors{b}));
  for (int i = 0; i < 2; ++i) {
    a.mutable_grad() = torch::randn({12});
    b.mutable_grad() = a.grad().clone();
    twins.step();
  }
  EXPECT_TRUE(same_bits(a, b));
}

TEST_P(Optimizers, CallTheClosureWithGradients) {
  const auto p = torch::ones({3}).requires_grad_(true);
  const auto optimizer = GetParam().ours({p});
  int calls = 0;
  const torch::NoGradGuard outside;
  const auto loss = optimizer->step([&] {
    ++calls;
    EXPECT_TRUE(torch::GradMode::is_enabled());
    auto sum = (p * 2).sum();
    sum.backward();
    return sum;
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(loss.item<float>(), 6);
  EXPECT_FALSE(torch::equal(p, torch::ones({3})));
  EXPECT_FALSE(torch::GradMode::is_enabled());
  EXPECT_FALSE(optimizer->step().defined());
}

// A file of either optimizer resumes in the other.
TEST_P(Optimizers, ExchangeFilesWithLibtorchs) {
  Twins twins(GetParam(), of_sizes({{33}, {4, 5}}));
  for (int i = 0; i < 2; ++i) {
    twins.set_random_gradients();
    twins.step();
  }
  std::stringstream our_file;
  std::stringstream their_file;
  torch::save(twins.our_optimizer(), our_file);
  torch::save(twins.their_optimizer(), their_file);
  auto ours = GetParam().ours(twins.ours());
  auto theirs = GetParam().theirs(twins.theirs());
  torch::load(*ours, their_file);
  torch::load(*theirs, our_file);
  twins.replace_optimizers(std::move(ours), std::move(theirs));
  for (int i = 0; i < 2; ++i) {
    twins.set_random_gradients();
    twins.step();
  }
  twins.expect_same();
}

TEST(OptimizerGroups, HaveTheirOwnOptions) {
  torch::manual_seed(1);
  const auto run = [](bool ours) {
    torch::manual_seed(2);
    const Tensors p{torch::randn({20}), torch::randn({30})};
    Groups groups;
    using torch::optim::AdamWOptions;
    groups.emplace_back(Tensors{p[0].requires_grad_(true)},
                        std::make_unique<AdamWOptions>(AdamWOptions(0.1).weight_decay(0.5)));
    groups.emplace_back(
        Tensors{p[1].requires_grad_(true)},
        std::make_unique<AdamWOptions>(AdamWOptions(0.2).weight_decay(0).betas({0.5, 0.6})));
    OptimizerPointer optimizer;
    if (ours) {
      optimizer = std::make_unique<AdamW>(groups, AdamWOptions(0.3));
    } else {
      optimizer = std::make_unique<torch::optim::AdamW>(groups, AdamWOptions(0.3));
    }
    for (int i = 0; i < 3; ++i) {
      for (const auto& t : p) t.mutable_grad() = torch::randn_like(t).detach();
      optimizer->step();
    }
    return p;
  };
  const auto ours = run(true);
  const auto theirs = run(false);
  EXPECT_TRUE(same_bits(ours[0], theirs[0]));
  EXPECT_TRUE(same_bits(ours[1], theirs[1]));
}

// Backward must notice that a value it saved has changed.
TEST(OptimizerVersions, AdamWGivesTheParameterANewVersion) {
  const auto p = torch::ones({3}).requires_grad_(true);
  AdamW optimizer(Tensors{p});
  const auto loss = (p * p).sum();
  loss.backward({}, /*retain_graph=*/true);
  optimizer.step();
  EXPECT_THROW(loss.backward(), c10::Error);
}

}  // namespace
}  // namespace ddp::optim
