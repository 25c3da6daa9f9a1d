// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/optimizer_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "ddp_runtime/train/model/optimizer.h"
#include "ddp_runtime/train/state/optimizer_states.h"
#include "tests/unit/error_of.h"
#include "tests/unit/test_device.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;

void step(torch::nn::Linear& layer, torch::optim::Optimizer& optimizer) {
  optimizer.zero_grad();
  layer->forward(test::on_test_device(torch::ones({1, 3}))).pow(2).sum().backward();
  optimizer.step();
}

// Adds what make_optimizer() does not offer but a custom program may use.
std::unique_ptr<torch::optim::Optimizer> optimizer_of(torch::nn::Linear& layer,
                                                      const std::string& name) {
  using namespace torch::optim;
  if (name == "adam_amsgrad") {
    return std::make_unique<Adam>(layer->parameters(), AdamOptions(0.1).amsgrad(true));
  }
  if (name == "adamw_amsgrad") {
    return std::make_unique<AdamW>(layer->parameters(), AdamWOptions(0.1).amsgrad(true));
  }
  if (name == "rmsprop") return std::make_unique<RMSprop>(layer->parameters());
  if (name == "rmsprop_centered_momentum") {
    return std::make_unique<RMSprop>(layer->parameters(),
                                     RMSpropOptions(0.1).momentum(0.9).centered(true));
  }
  if (name == "adagrad") {
    const auto options = AdagradOptions(0.1).lr_decay(0.1).initial_accumulator_value(0.5);
    return std::make_unique<Adagrad>(layer->parameters(), options);
  }
  return make_optimizer(*layer, {name, 0.1, 0.9, 0.01});
}

class StatesOfAnOptimizer : public testing::TestWithParam<const char*> {};

// Training that continues with another process's optimizer state must be bitwise the same.
TEST_P(StatesOfAnOptimizer, ContinuesBitwiseInANewOptimizer) {
  torch::manual_seed(1);
  auto original = test::on_test_device(torch::nn::Linear(3, 2));
  auto optimizer = optimizer_of(original, GetParam());
  for (int i = 0; i < 3; ++i) step(original, *optimizer);

  auto copy = test::on_test_device(torch::nn::Linear(3, 2));
  auto other = optimizer_of(copy, GetParam());
  {
    const torch::NoGradGuard no_grad;
    copy->weight.copy_(original->weight);
    copy->bias.copy_(original->bias);
    const auto saved = OptimizerState(*optimizer, named_parameters(*original)).arrays();
    OptimizerState state(*other, named_parameters(*copy));
    std::vector<std::string> names;
    for (const auto& t : saved) names.push_back(t.name);
    const auto targets = state.allocate(names);
    for (std::size_t i = 0; i < saved.size(); ++i) targets[i].tensor.copy_(saved[i].tensor);
    state.commit(targets);
  }
  for (int i = 0; i < 3; ++i) {
    step(original, *optimizer);
    step(copy, *other);
  }
  EXPECT_TRUE(torch::equal(original->weight, copy->weight));
  EXPECT_TRUE(torch::equal(original->bias, copy->bias));
}

INSTANTIATE_TEST_SUITE_P(All, StatesOfAnOptimizer,
                         testing::Values("sgd", "adam", "adamw", "adam_amsgrad", "adamw_amsgrad",
                                         "rmsprop", "rmsprop_centered_momentum", "adagrad"));

TEST(OptimizerState, IsEmptyBeforeTheFirstStep) {
  auto layer = test::on_test_device(torch::nn::Linear(3, 2));
  const auto optimizer = make_optimizer(*layer, {});
  EXPECT_TRUE(OptimizerState(*optimizer, named_parameters(*layer)).arrays().empty());
}

TEST(OptimizerState, UnknownNamesAreRefused) {
  auto layer = test::on_test_device(torch::nn::Linear(3, 2));
  const auto optimizer = make_optimizer(*layer, {});
  OptimizerState state(*optimizer, named_parameters(*layer));
  const auto error = [&](const std::string& name) {
    return error_of<UsageError>([&] { state.allocate(std::vector{name}); });
  };
  EXPECT_THAT(error("conv.weight/momentum_buffer"), HasSubstr("no parameter 'conv.weight'"));
  EXPECT_THAT(error("weight/exp_avg"), HasSubstr("this optimizer does not have"));
  EXPECT_THAT(error("weight"), HasSubstr("no parameter"));
}

TEST(DecayGroups, ExcludeBiasesNormsAndEmbeddings) {
  torch::nn::Sequential net(torch::nn::Embedding(5, 4), torch::nn::Conv2d(1, 2, 3),
                            torch::nn::BatchNorm2d(2), torch::nn::Linear(4, 3));
  net[1]->as<torch::nn::Conv2d>()->bias.requires_grad_(false);
  const auto groups = decay_groups(*net);
  ASSERT_EQ(groups.decayed.size(), 2U);
  EXPECT_TRUE(groups.decayed[0].is_same(net[1]->as<torch::nn::Conv2d>()->weight));
  EXPECT_TRUE(groups.decayed[1].is_same(net[3]->as<torch::nn::Linear>()->weight));
  EXPECT_EQ(groups.free.size(), 4U) << "embedding, norm's weight and bias, linear's bias";
}

TEST(DecayGroups, WorkForAModelOnTheStack) {
  struct OnTheStack : torch::nn::Module {
    torch::nn::Linear layer{register_module("layer", torch::nn::Linear(2, 2))};
  } net;
  const auto groups = decay_groups(net);
  EXPECT_EQ(groups.decayed.size(), 1U);
  EXPECT_EQ(groups.free.size(), 1U);
}

// Without a gradient, decoupled decay alone shrinks the parameters it applies to: by lr x decay.
TEST(DecayGroups, ReachTheOptimizer) {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    auto layer = test::on_test_device(torch::nn::Linear(2, 2));
    const auto weight = layer->weight.detach().clone();
    const auto bias = layer->bias.detach().clone();
    const auto optimizer = make_optimizer(*layer, {name, 0.1, 0, 0.5});
    (layer(test::on_test_device(torch::ones({1, 2}))).sum() * 0).backward();
    optimizer->step();
    EXPECT_TRUE(torch::equal(layer->bias, bias)) << name;
    EXPECT_FALSE(torch::equal(layer->weight, weight)) << name;
    if (std::string(name) != "adam") {
      EXPECT_TRUE(torch::allclose(layer->weight, weight * 0.95)) << name;
    }
  }
}

TEST(MakeOptimizer, UnknownNamesAreRefused) {
  EXPECT_THROW(make_optimizer(*torch::nn::Linear(1, 1), {"lion"}), UsageError);
}

// Two layers with an optimizer each, as the parts of one module.
struct TwoLayers : torch::nn::Module {
  TwoLayers() {
    register_module("first", first);
    register_module("second", second);
    test::move_to_test_device(*this);
  }
  torch::nn::Linear first{3, 2};
  torch::nn::Linear second{3, 2};
};

TEST(StatesOfTwoOptimizers, GoToTheOptimizerOfTheParameter) {
  TwoLayers original;
  torch::optim::Adam adam(original.first->parameters(), torch::optim::AdamOptions(0.1));
  torch::optim::SGD sgd(original.second->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int i = 0; i < 2; ++i) {
    step(original.first, adam);
    step(original.second, sgd);
  }
  const torch::NoGradGuard no_grad;
  const auto saved = OptimizerStates({&adam, &sgd}, named_parameters(original)).arrays();
  std::vector<std::string> names;
  for (const auto& t : saved) names.push_back(t.name);
  EXPECT_THAT(names, testing::IsSupersetOf({"first.weight/exp_avg", "first.bias/step",
                                            "second.weight/momentum_buffer"}));
  EXPECT_EQ(names.size(), 8U);

  TwoLayers copy;
  torch::optim::Adam other_adam(copy.first->parameters());
  torch::optim::SGD other_sgd(copy.second->parameters(),
                              torch::optim::SGDOptions(0.1).momentum(0.9));
  // In another order than saved.
  OptimizerStates states({&other_sgd, &other_adam}, named_parameters(copy));
  const auto targets = states.allocate(names, Held::whole);
  ASSERT_EQ(targets.size(), saved.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(targets[i].name, saved[i].name);
    targets[i].tensor.copy_(saved[i].tensor);
  }
  states.commit(targets);
  const auto restored = OptimizerStates({&other_adam, &other_sgd}, named_parameters(copy)).arrays();
  ASSERT_EQ(restored.size(), saved.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_TRUE(torch::equal(restored[i].tensor.cpu(), saved[i].tensor.cpu())) << saved[i].name;
  }
}

TEST(StatesOfTwoOptimizers, MustNotOverlap) {
  TwoLayers layers;
  torch::optim::SGD all(layers.parameters(), torch::optim::SGDOptions(0.1));
  torch::optim::SGD some(layers.second->parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_THAT(error_of([&] {
                OptimizerStates({&all, &some}, named_parameters(layers));
              }),
              HasSubstr("two optimizers update the parameter 'second.weight'"));
  EXPECT_THAT(error_of([&] { OptimizerStates({}, named_parameters(layers)); }),
              HasSubstr("needs an optimizer"));
}

}  // namespace
}  // namespace ddp::train
