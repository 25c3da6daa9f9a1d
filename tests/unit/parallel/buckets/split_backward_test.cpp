// SPDX-License-Identifier: Apache-2.0
// Layers whose parameters get their gradients later.
#include "ddp_runtime/parallel/buckets/split_backward.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/unit/test_device.h"

namespace ddp::test {
namespace {

using Postponed = c10::intrusive_ptr<PostponedGradients>;

torch::Tensor values(std::vector<std::int64_t> shape, double phase = 0) {
  std::int64_t count = 1;
  for (const auto size : shape) count *= size;
  return on_test_device(torch::sin(torch::arange(count, torch::kFloat32) + phase).view(shape));
}

struct SplitCase {
  std::string name;
  std::vector<std::int64_t> input;
  std::function<torch::Tensor(const torch::Tensor&)> layer;
  std::vector<torch::Tensor> parameters;
};

std::vector<SplitCase> split_cases() {
  std::vector<SplitCase> cases;
  for (const bool bias : {true, false}) {
    auto linear = on_test_device(torch::nn::Linear(torch::nn::LinearOptions(6, 4).bias(bias)));
    auto call = [linear](const torch::Tensor& x) mutable { return linear->forward(x); };
    const std::string name = bias ? "linear" : "linear without bias";
    cases.push_back({name, {5, 6}, call, linear->parameters()});
    cases.push_back({name + ", three dimensions", {2, 5, 6}, call, linear->parameters()});
    cases.push_back({name + ", one dimension", {6}, call, linear->parameters()});
  }
  if (on_device()) return cases;
  auto convolution = torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3).padding(1));
  cases.push_back(
      {"convolution",
       {2, 2, 5, 5},
       [convolution](const torch::Tensor& x) mutable { return convolution->forward(x); },
       convolution->parameters()});
  return cases;
}

void forget(const std::vector<torch::Tensor>& parameters) {
  for (auto parameter : parameters) parameter.mutable_grad().reset();
}

std::vector<torch::Tensor> copies_of_gradients(const std::vector<torch::Tensor>& parameters) {
  std::vector<torch::Tensor> copies;
  for (const auto& parameter : parameters) copies.push_back(parameter.grad().detach().clone());
  return copies;
}

TEST(SplitBackward, HasTheBitsOfBackward) {
  for (const auto& one : split_cases()) {
    for (const bool wants_input : {true, false}) {
      forget(one.parameters);
      std::vector<torch::Tensor> of_input;
      for (int i = 0; i < 3; ++i) {
        const auto x = values(one.input, i).requires_grad_(wants_input);
        one.layer(x).pow(2).sum().backward();
        of_input.push_back(x.grad());
      }
      const auto expected = copies_of_gradients(one.parameters);
      forget(one.parameters);
      for (int i = 0; i < 3; ++i) {
        const auto postponed = c10::make_intrusive<PostponedGradients>();
        const auto x = values(one.input, i).requires_grad_(wants_input);
        torch::Tensor y;
        {
          const PostponeGradients postpone(postponed);
          y = split_backward(one.layer, x, one.parameters);
        }
        y.pow(2).sum().backward();
        if (wants_input) {
          EXPECT_TRUE(torch::equal(x.grad(), of_input[static_cast<std::size_t>(i)])) << one.name;
        }
        EXPECT_EQ(one.parameters[0].grad().defined(), i > 0) << one.name;
        postponed->run();
      }
      const auto mine = copies_of_gradients(one.parameters);
      for (std::size_t k = 0; k < mine.size(); ++k) {
        EXPECT_TRUE(torch::equal(mine[k], expected[k])) << one.name << ", parameter " << k;
      }
    }
  }
}

// A weight that is used twice gets one sum, and its hooks run once.
TEST(SplitBackward, SumsTheUsesOfAWeightFirst) {
  const auto layer = on_test_device(torch::nn::Linear(4, 4));
  const auto train = [&](const Postponed& postponed) {
    forget(layer->parameters());
    int hooks = 0;
    const auto hook = layer->weight.register_hook([&](const torch::Tensor&) { ++hooks; });
    for (int i = 0; i < 2; ++i) {
      torch::Tensor y;
      {
        const PostponeGradients postpone(postponed);
        y = split_linear(*layer, torch::tanh(split_linear(*layer, values({3, 4}, i))));
      }
      y.pow(2).sum().backward();
      EXPECT_EQ(hooks, postponed ? i : i + 1);
      if (postponed) postponed->run();
      EXPECT_EQ(hooks, i + 1);
    }
    layer->weight.remove_hook(hook);
    return copies_of_gradients(layer->parameters());
  };
  const auto expected = train({});
  const auto mine = train(c10::make_intrusive<PostponedGradients>());
  for (std::size_t k = 0; k < mine.size(); ++k) EXPECT_TRUE(torch::equal(mine[k], expected[k]));
}

TEST(SplitBackward, LeavesOutWhatIsNotTrained) {
  const auto layer = on_test_device(torch::nn::Linear(4, 4));
  layer->weight.requires_grad_(false);
  const auto postponed = c10::make_intrusive<PostponedGradients>();
  const PostponeGradients postpone(postponed);
  const auto x = values({3, 4}).requires_grad_();
  split_linear(*layer, x).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  postponed->run();
  EXPECT_FALSE(layer->weight.grad().defined());
  EXPECT_TRUE(torch::equal(layer->bias.grad().cpu(), torch::full({4}, 3.0F)));
  layer->bias.requires_grad_(false);
  EXPECT_FALSE(split_linear(*layer, values({3, 4})).requires_grad());
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(split_linear(*layer, x).requires_grad());
}

TEST(SplitBackward, DoesNotKeepItsOutput) {
  if (on_device()) GTEST_SKIP() << "memory of a device is freed later";
  const auto layer = torch::nn::Linear(4, 4);
  const auto postponed = c10::make_intrusive<PostponedGradients>();
  const PostponeGradients postpone(postponed);
  auto y = split_linear(*layer, values({3, 4}));
  const c10::weak_intrusive_ptr<c10::StorageImpl> memory = y.storage().getWeakStorageImpl();
  const auto z = y + 1;  // does not save its arguments
  y.reset();
  EXPECT_TRUE(memory.expired());
  z.sum().backward();
  postponed->run();
  EXPECT_TRUE(layer->weight.grad().defined());
}

// The next layer may work in place.
TEST(SplitBackward, GivesAnOutputThatMayBeChanged) {
  auto layer = on_test_device(SplitLinear(4, 4));
  auto expected_layer = on_test_device(torch::nn::Linear(4, 4));
  {
    const torch::NoGradGuard no_grad;
    expected_layer->weight.copy_(layer->weight);
    expected_layer->bias.copy_(layer->bias);
  }
  expected_layer(values({3, 4})).relu_().pow(2).sum().backward();
  const auto postponed = c10::make_intrusive<PostponedGradients>();
  {
    const PostponeGradients postpone(postponed);
    layer(values({3, 4})).relu_().pow(2).sum().backward();
  }
  postponed->run();
  EXPECT_TRUE(torch::equal(layer->weight.grad(), expected_layer->weight.grad()));
  EXPECT_TRUE(torch::equal(layer->bias.grad(), expected_layer->bias.grad()));
}

}  // namespace
}  // namespace ddp::test
