// SPDX-License-Identifier: Apache-2.0
// Steps in parts, compared with libtorch's step.
#include "ddp_runtime/optim/partial_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ddp_runtime/optim/skipped_steps.h"
#include "tests/unit/optim/pair_of_optimizers.h"

namespace ddp::optim {
namespace {

std::unique_ptr<PartialStep> begin(torch::optim::Optimizer& optimizer) {
  return dynamic_cast<StepsInParts&>(optimizer).begin_partial_step();
}

Tensors some_parameters() {
  torch::manual_seed(3);
  return {torch::randn({7}), torch::randn({40, 3}), torch::randn({1}), torch::randn({9, 2}).t(),
          torch::randn({33})};
}

// AMSGrad is left to libtorch's step.
std::vector<Recipe> fitting() {
  auto all = recipes();
  std::erase_if(all, [](const Recipe& r) { return r.name.ends_with("amsgrad"); });
  return all;
}

class StepInParts : public testing::TestWithParam<Recipe> {};

TEST_P(StepInParts, EqualsAWholeStep) {
  Twins twins(GetParam(), some_parameters());
  const auto& p = twins.ours();
  const auto other = torch::randn({7}).requires_grad_(true);
  other.mutable_grad() = torch::ones({7});
  const auto other_before = other.detach().clone();
  for (int i = 0; i < 4; ++i) {
    twins.set_random_gradients();
    if (i == 2) twins.set_gradient(1, {});
    twins.their_optimizer().step();
    const auto step = begin(twins.our_optimizer());
    ASSERT_TRUE(step);
    step->update(Tensors{p[4], other});
    step->update(Tensors{p[4]});  // has been updated
    step->update(Tensors{p[1], p[0]});
    step->update(Tensors{});
    step->finish();
    twins.expect_same();
  }
  EXPECT_TRUE(torch::equal(other, other_before));
}

TEST_P(StepInParts, MayAlternateWithWholeSteps) {
  Twins twins(GetParam(), some_parameters());
  for (int i = 0; i < 5; ++i) {
    twins.set_random_gradients();
    twins.their_optimizer().step();
    if (i % 2 == 0) {
      const auto step = begin(twins.our_optimizer());
      ASSERT_TRUE(step);
      step->update(Tensors{twins.ours()[2], twins.ours()[3]});
      step->finish();
    } else {
      twins.our_optimizer().step();
    }
    twins.expect_same();
  }
}

TEST_P(StepInParts, ChangesOnlyTheGivenParametersAndTheirState) {
  Twins twins(GetParam(), some_parameters());
  twins.set_random_gradients();
  const auto& p = twins.ours();
  Tensors before;
  for (const auto& parameter : p) before.push_back(parameter.detach().clone());
  const auto step = begin(twins.our_optimizer());
  ASSERT_TRUE(step);
  step->update(Tensors{p[3]});
  for (std::size_t i = 0; i < p.size(); ++i) {
    EXPECT_EQ(torch::equal(p[i], before[i]), i != 3) << i;
    const bool has_state = twins.our_optimizer().state().count(torch_compat::state_key(p[i])) > 0;
    EXPECT_TRUE(i == 3 || !has_state) << i;
  }
}

// A part reads the gradient's values when it updates, not when the step begins.
TEST_P(StepInParts, ReadsGradientsThatArriveAfterTheBeginning) {
  Twins twins(GetParam(), some_parameters());
  for (int i = 0; i < 3; ++i) {
    twins.set_random_gradients();
    Tensors late;
    for (const auto& p : twins.ours()) {
      late.push_back(p.grad().clone());
      p.mutable_grad().fill_(1000);
    }
    const auto step = begin(twins.our_optimizer());
    ASSERT_TRUE(step);
    for (std::size_t k = late.size(); k-- > 0;) {
      twins.ours()[k].mutable_grad().copy_(late[k]);
      step->update(Tensors{twins.ours()[k]});
    }
    step->finish();
    twins.their_optimizer().step();
    twins.expect_same();
  }
}

// Doubles are left to libtorch's step.
TEST_P(StepInParts, LeavesOtherTypesToTheEnd) {
  Twins twins(GetParam(), {torch::randn({5}), torch::randn({6}, torch::kFloat64)});
  for (int i = 0; i < 3; ++i) {
    twins.set_random_gradients();
    twins.their_optimizer().step();
    const auto before = twins.ours()[1].detach().clone();
    const auto step = begin(twins.our_optimizer());
    ASSERT_TRUE(step);
    step->update(twins.ours());
    EXPECT_TRUE(torch::equal(twins.ours()[1], before));
    step->finish();
    twins.expect_same();
  }
}

TEST_P(StepInParts, IsRefusedIfNothingFits) {
  Twins twins(GetParam(), {torch::randn({6}, torch::kFloat64)});
  twins.set_random_gradients();
  EXPECT_EQ(begin(twins.our_optimizer()), nullptr);
}

TEST_P(StepInParts, IsRefusedIfParametersShareMemory) {
  const auto whole = torch::randn({10});
  Tensors parameters{whole.narrow(0, 0, 6).detach().requires_grad_(true),
                     whole.narrow(0, 4, 6).detach().requires_grad_(true)};
  const auto optimizer = GetParam().ours(parameters);
  for (auto& p : parameters) p.mutable_grad() = torch::ones({6});
  EXPECT_EQ(begin(*optimizer), nullptr);
}

// libtorch's update comes first in a whole step, but last in parts.
TEST_P(StepInParts, IsRefusedIfAParameterForLibtorchSharesMemory) {
  const auto whole = torch::randn({10});
  Tensors parameters{whole.narrow(0, 0, 6).detach().requires_grad_(true),
                     whole.slice(0, 0, 10, 2).detach().requires_grad_(true)};  // with gaps
  const auto optimizer = GetParam().ours(parameters);
  parameters[0].mutable_grad() = torch::ones({6});
  parameters[1].mutable_grad() = torch::ones({5});
  EXPECT_EQ(begin(*optimizer), nullptr);
}

TEST_P(StepInParts, IsRefusedWithASparseGradient) {
  Tensors parameters{torch::randn({4}).requires_grad_(true),
                     torch::randn({4, 2}).requires_grad_(true),
                     torch::randn({2}, torch::kFloat64).requires_grad_(true)};
  const auto optimizer = GetParam().ours(parameters);
  parameters[0].mutable_grad() = torch::ones({4});
  parameters[1].mutable_grad() = torch::ones({4, 2}).to_sparse();
  parameters[2].mutable_grad() = torch::ones({2}, torch::kFloat64);
  EXPECT_EQ(begin(*optimizer), nullptr);
}

TEST(StepInPartsOfSgd, IsRefusedIfParametersShareTheirState) {
  const Tensors parameters{torch::ones({4}).requires_grad_(true),
                           torch::ones({4}).requires_grad_(true)};
  SGD optimizer(parameters, torch::optim::SGDOptions(0.1).momentum(0.9));
  const auto buffer = torch::zeros({4});
  for (const auto& p : parameters) {
    p.mutable_grad() = torch::ones({4});
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer(buffer);
    optimizer.state()[torch_compat::state_key(p)] = std::move(state);
  }
  EXPECT_EQ(optimizer.begin_partial_step(), nullptr);
}

// Whether the step is made at all is not known yet.
TEST_P(StepInParts, IsRefusedIfAFlagMaySkipTheStep) {
  Twins twins(GetParam(), some_parameters());
  const auto before = twins.ours()[0].detach().clone();
  twins.set_random_gradients();
  auto& optimizer = twins.our_optimizer();
  dynamic_cast<SkipsSteps&>(optimizer).skip_next_step_if(torch::ones({}));
  EXPECT_EQ(begin(optimizer), nullptr);
  optimizer.step();
  EXPECT_TRUE(torch::equal(twins.ours()[0], before));
  dynamic_cast<SkipsSteps&>(optimizer).settle_step(true);
  EXPECT_NE(begin(optimizer), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StepInParts, testing::ValuesIn(fitting()),
                         [](const auto& param_info) { return param_info.param.name; });

class WithoutRules : public AdamW {
 public:
  using AdamW::AdamW;

 protected:
  const UpdateRules* rules() const override { return nullptr; }
};

TEST(StepInPartsOfAmsgrad, IsRefused) {
  for (const auto& recipe : recipes()) {
    if (!recipe.name.ends_with("amsgrad")) continue;
    const auto p = torch::ones({3}).requires_grad_(true);
    p.mutable_grad() = torch::ones({3});
    const auto optimizer = recipe.ours({p});
    EXPECT_EQ(begin(*optimizer), nullptr) << recipe.name;
  }
}

TEST(StepInPartsWithoutRules, IsRefused) {
  const auto p = torch::ones({3}).requires_grad_(true);
  p.mutable_grad() = torch::ones({3});
  WithoutRules optimizer(Tensors{p});
  EXPECT_EQ(optimizer.begin_partial_step(), nullptr);
}

// Groups keep their options, and a learning rate that changes between steps is followed.
TEST(StepInPartsWithGroups, FollowsTheOptionsOfEach) {
  const auto groups_over = [](const Tensors& p) {
    Groups groups;
    groups.emplace_back(Tensors{p[0], p[2]}, std::make_unique<torch::optim::AdamWOptions>(0.1));
    groups.emplace_back(Tensors{p[1], p[3], p[4]},
                        std::make_unique<torch::optim::AdamWOptions>(
                            torch::optim::AdamWOptions(0.02).weight_decay(0.3).eps(1e-5)));
    return groups;
  };
  const auto parameters = some_parameters();
  Twins twins(fitting().back(), parameters);
  twins.replace_optimizers(std::make_unique<AdamW>(groups_over(twins.ours())),
                           std::make_unique<torch::optim::AdamW>(groups_over(twins.theirs())));
  for (int i = 0; i < 4; ++i) {
    for (auto* optimizer : {&twins.our_optimizer(), &twins.their_optimizer()}) {
      optimizer->param_groups()[1].options().set_lr(0.02 * (i + 1));
    }
    twins.set_random_gradients();
    twins.their_optimizer().step();
    const auto step = begin(twins.our_optimizer());
    ASSERT_TRUE(step);
    step->update(Tensors{twins.ours()[1], twins.ours()[2]});
    step->finish();
    twins.expect_same();
  }
}

}  // namespace
}  // namespace ddp::optim
