// SPDX-License-Identifier: Apache-2.0
// Layers that backward recomputes. Their parameters get gradients from a nested backward, several
// times, and the reducer must not send these gradients too early.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/parallel/layers/activation_checkpoint.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

struct DeepImpl : torch::nn::Module {
  DeepImpl() {
    register_module("one", one);
    register_module("two", two);
    register_module("three", three);
  }
  torch::Tensor middle(const torch::Tensor& x) {
    return torch::dropout(torch::tanh(two(x)), 0.3, is_training());
  }
  torch::Tensor forward(const torch::Tensor& x, bool save_memory, int times) {
    auto y = torch::tanh(one(x));
    for (int i = 0; i < times; ++i) {
      y = save_memory ? checkpointed([this](const auto& in) { return middle(in[0]); }, {y},
                                     two->parameters())
                      : middle(y);
    }
    return three(y);
  }
  torch::nn::Linear one{4, 5};
  torch::nn::Linear two{5, 5};
  torch::nn::Linear three{5, 2};
};
TORCH_MODULE(Deep);

TEST(ActivationCheckpoint, GradientsAreBitwiseTheSameWithDropout) {
  for (const int times : {1, 2}) {
    std::vector<std::map<std::string, torch::Tensor>> results;
    for (const bool save_memory : {false, true}) {
      torch::manual_seed(3);
      auto net = on_test_device(Deep());
      loss_of(net->forward(input_of(0), save_memory, times)).backward();
      results.push_back(gradients_of(*net));
    }
    ASSERT_EQ(results[0].size(), 6U);
    for (const auto& [name, gradient] : results[0]) {
      EXPECT_TRUE(torch::equal(gradient, results[1].at(name))) << name << ", " << times << " times";
    }
  }
}

// They come from the generator of the device on which the segment runs.
TEST(ActivationCheckpoint, RepeatsItsRandomNumbers) {
  std::vector<torch::Tensor> gradients;
  for (const bool save_memory : {false, true}) {
    auto layer = seeded([] { return torch::nn::Linear(4, 5); });
    const CheckpointedFunction noisy = [&](const std::vector<torch::Tensor>& in) {
      const auto y = layer->forward(in[0]);
      return y * torch::rand_like(y);
    };
    const std::vector<torch::Tensor> inputs = {input_of(0)};
    const auto y = save_memory ? checkpointed(noisy, inputs, layer->parameters()) : noisy(inputs);
    loss_of(y).backward();
    gradients.push_back(layer->weight.grad().cpu());
  }
  EXPECT_TRUE(torch::equal(gradients[0], gradients[1]));
}

TEST(ActivationCheckpoint, WorksWithBucketsWithoutAStaticGraph) {
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = seeded([] { return Deep(); });
    net->eval();  // threads share the random generator
    DistributedDataParallel replica(*net, group, small_buckets());
    std::vector<std::map<std::string, torch::Tensor>> results;
    for (const bool save_memory : {false, true, true}) {
      auto step = replica.begin_step();
      step.backward(loss_of(net->forward(input_of(group.rank()), save_memory, 2)));
      results.push_back(gradients_of(*net));
    }
    expect_close(results[0], results[1]);
    expect_close(results[0], results[2]);
  });
}

// Typical uses of checkpointed segments (pytorch/pytorch#69060): once, twice, with an unused
// branch, with weights shared by two segments, with a changing number of segments.
struct SegmentCase {
  const char* name;
  bool with_unused;
  std::vector<int> times;  // number of uses of the shared middle layer, by step
  bool allow_unused;
  bool static_graph;
};

class CheckpointedSegments : public testing::TestWithParam<SegmentCase> {};

TEST_P(CheckpointedSegments, HaveTheGradientsOfOneProcessWithoutCheckpointing) {
  const auto& c = GetParam();
  const auto make = [&c] {
    // All random numbers are drawn under the lock: those of the unused layer would otherwise change
    // the weights that another rank draws at the same time.
    auto net = seeded([&c] {
      Deep made;
      if (c.with_unused) made->register_module("unused", torch::nn::Linear(2, 2));
      return made;
    });
    net->eval();  // threads share the random generator
    return net;
  };
  std::vector<std::map<std::string, torch::Tensor>> expected;
  auto alone = make();
  for (const int times : c.times) {
    for (auto& p : alone->parameters()) p.mutable_grad().reset();
    for (int rank = 0; rank < 2; ++rank) {
      const auto loss = loss_of(alone->forward(input_of(rank), false, times));
      loss.backward(torch::full_like(loss, 0.5));
    }
    expected.push_back(gradients_of(*alone));
  }
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = make();
    auto options = small_buckets();
    options.allow_unused = c.allow_unused;
    options.static_graph = c.static_graph;
    DistributedDataParallel replica(*net, group, options);
    for (std::size_t i = 0; i < c.times.size(); ++i) {
      auto step = replica.begin_step();
      step.backward(loss_of(net->forward(input_of(group.rank()), true, c.times[i])));
      expect_close(gradients_of(*net), expected[i]);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Uses, CheckpointedSegments,
    testing::Values(SegmentCase{"once", false, {1, 1, 1}, false, false},
                    SegmentCase{"twice_with_shared_weights", false, {2, 2, 2}, false, false},
                    SegmentCase{"dynamic", false, {1, 3, 2}, false, false},
                    SegmentCase{"dynamic_and_sometimes_unused", false, {1, 0, 2}, true, false},
                    SegmentCase{"beside_an_unused_layer", true, {2, 2, 2}, true, false},
                    SegmentCase{"once_static", false, {1, 1, 1}, false, true},
                    SegmentCase{"twice_static", false, {2, 2, 2}, false, true},
                    SegmentCase{"unused_static", true, {2, 2, 2}, false, true}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

// A model, and functions that run it with and without checkpointed segments.
struct TrainedCase {
  std::vector<torch::Tensor> parameters;
  std::function<torch::Tensor(bool save_memory)> forward;
};

struct Trained {
  const char* name;
  TrainedCase (*make)();
};

template <class Layer>
torch::Tensor maybe_checkpointed(bool save_memory, Layer layer, const torch::Tensor& x) {
  if (!save_memory) return layer->forward(x);
  return checkpointed([layer](const auto& in) mutable { return layer->forward(in[0]); }, {x},
                      layer->parameters());
}

std::vector<torch::Tensor> joined(std::vector<torch::Tensor> a,
                                  const std::vector<torch::Tensor>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TrainedCase convolution() {
  auto layer = on_test_device(torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3)));
  const auto x = on_test_device(torch::randn({2, 2, 5, 5}));
  return {layer->parameters(), [=](bool save) { return maybe_checkpointed(save, layer, x); }};
}

// Uses [n, features], because with one more dimension the layer multiplies by a view of its weight.
TrainedCase linear() {
  auto layer = on_test_device(torch::nn::Linear(4, 3));
  const auto x = on_test_device(torch::randn({2, 4}));
  return {layer->parameters(), [=](bool save) { return maybe_checkpointed(save, layer, x); }};
}

TrainedCase two_segments() {
  auto a = on_test_device(torch::nn::Linear(4, 4));
  auto b = on_test_device(torch::nn::Linear(4, 4));
  const auto x = on_test_device(torch::randn({2, 4}));
  return {joined(a->parameters(), b->parameters()),
          [=](bool save) { return maybe_checkpointed(save, b, maybe_checkpointed(save, a, x)); }};
}

TrainedCase nested_segments() {
  auto inner = on_test_device(torch::nn::Linear(4, 4));
  auto outer = on_test_device(torch::nn::Linear(4, 3));
  const auto x = on_test_device(torch::randn({2, 4}));
  const auto parameters = joined(inner->parameters(), outer->parameters());
  return {parameters, [=](bool save) mutable {
            CheckpointedFunction both = [=](const std::vector<torch::Tensor>& in) mutable {
              return outer(torch::tanh(maybe_checkpointed(save, inner, in[0])));
            };
            return save ? checkpointed(both, {x}, parameters) : both({x});
          }};
}

// A layer that is used in a segment and again outside. The second use must not find the cast from
// the first one, which has no path back to the weight.
TrainedCase shared_with_a_plain_layer() {
  auto layer = on_test_device(torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3)));
  const auto x = on_test_device(torch::randn({2, 2, 5, 5}));
  return {layer->parameters(), [=](bool save) mutable {
            const auto segment = maybe_checkpointed(save, layer, x);
            return segment.detach() + layer->forward(x);
          }};
}

TrainedCase frozen_weight() {
  auto layer = on_test_device(torch::nn::Linear(4, 3));
  layer->weight.requires_grad_(false);
  const auto x = on_test_device(torch::randn({2, 4}));
  return {{layer->bias}, [=](bool save) { return maybe_checkpointed(save, layer, x); }};
}

std::vector<double> losses_of(const TrainedCase& model, amp::Precision precision, bool save_memory,
                              bool backward_inside) {
  torch::optim::SGD optimizer(model.parameters, 0.05);
  std::vector<double> losses;
  for (int step = 0; step < 10; ++step) {
    optimizer.zero_grad();
    std::optional<amp::AutocastGuard> autocast(std::in_place, test_device().type(), precision);
    const auto loss = model.forward(save_memory).to(torch::kFloat32).pow(2).mean();
    if (!backward_inside) autocast.reset();
    loss.backward();
    autocast.reset();
    losses.push_back(loss.item<double>());
    optimizer.step();
  }
  return losses;
}

class CheckpointedTraining
    : public testing::TestWithParam<std::tuple<Trained, amp::Precision, bool>> {};

// Compares every step's loss: a loss computed with the previous step's weights would differ.
TEST_P(CheckpointedTraining, HasTheLossesOfPlainTraining) {
  const auto& [model, precision, backward_inside] = GetParam();
  std::vector<std::vector<double>> losses;
  for (const bool save_memory : {false, true}) {
    const auto made = seeded(model.make);
    losses.push_back(losses_of(made, precision, save_memory, backward_inside));
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_LT(losses[0].back(), losses[0].front());
}

std::string name_of(const testing::TestParamInfo<CheckpointedTraining::ParamType>& param_info) {
  const auto& [model, precision, backward_inside] = param_info.param;
  return std::string(model.name) + (precision == amp::Precision::fp32 ? "_fp32" : "_bf16") +
         (backward_inside ? "_backward_under_autocast" : "");
}

INSTANTIATE_TEST_SUITE_P(
    Models, CheckpointedTraining,
    testing::Combine(testing::Values(Trained{"convolution", convolution}, Trained{"linear", linear},
                                     Trained{"two_segments", two_segments},
                                     Trained{"nested_segments", nested_segments},
                                     Trained{"shared_with_a_plain_layer",
                                             shared_with_a_plain_layer},
                                     Trained{"frozen_weight", frozen_weight}),
                     testing::Values(amp::Precision::fp32, amp::Precision::bf16), testing::Bool()),
    name_of);

// Activation checkpointing by hand: a function whose backward runs a nested backward. This gives
// the layer's parameters their gradients immediately, one for each use.
class NestedBackward : public torch::autograd::Function<NestedBackward> {
 public:
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               torch::nn::LinearImpl* layer) {
    context->save_for_backward({x});
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
    const torch::NoGradGuard no_grad;
    return layer->forward(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               const torch::autograd::tensor_list& gradients) {
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    auto* layer = reinterpret_cast<torch::nn::LinearImpl*>(context->saved_data["layer"].toInt());
    const torch::AutoGradMode with_grad(true);
    layer->forward(x).backward(gradients[0]);
    std::this_thread::sleep_for(
        10ms);  // time for the reduction of a bucket that was sent too early
    return {x.grad(), torch::Tensor()};
  }
};

torch::Tensor nested_loss(Deep& net, const torch::Tensor& x, int times = 2) {
  auto y = torch::tanh(net->one(x));
  for (int i = 0; i < times; ++i) y = torch::tanh(NestedBackward::apply(y, net->two.get()));
  return loss_of(net->three(y));
}

TEST(NestedBackward, ParameterWithSeveralGradientsNeedsAStaticGraph) {
  allow_device_problems();  // backward adds to a gradient that is being reduced
  auto alone = seeded([] { return Deep(); });
  for (int rank = 0; rank < 2; ++rank) {
    const auto loss = nested_loss(alone, input_of(rank));
    loss.backward(torch::full_like(loss, 0.5));
  }
  const auto expected = gradients_of(*alone);
  ASSERT_EQ(expected.size(), 6U);
  test::run_ranks(2, [&](comm::Group& group) {
    auto net = seeded([] { return Deep(); });
    auto options = small_buckets();
    options.static_graph = true;
    DistributedDataParallel replica(*net, group, options);
    for (int i = 0; i < 3; ++i) {
      auto step = replica.begin_step();
      step.backward(nested_loss(net, input_of(group.rank())));
      expect_close(gradients_of(*net), expected);
    }
  });
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = seeded([] { return Deep(); });
                DistributedDataParallel replica(*net, group, small_buckets());
                auto step = replica.begin_step();
                step.backward(nested_loss(net, input_of(group.rank())));
              }),
              AllOf(HasSubstr("parameter 'two."), HasSubstr("got its gradient twice"),
                    HasSubstr("ddp::checkpointed()")));
}

TEST(NestedBackward, MoreGradientsThanInTheFirstStepAreNotStatic) {
  allow_device_problems();  // backward adds to a gradient that is being reduced
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                auto net = seeded([] { return Deep(); });
                auto options = small_buckets();
                options.static_graph = true;
                DistributedDataParallel replica(*net, group, options);
                for (const int times : {1, 2}) {
                  auto step = replica.begin_step();
                  step.backward(nested_loss(net, input_of(group.rank()), times));
                }
              }),
              AllOf(HasSubstr("parameter 'two."), HasSubstr("the graph is not static")));
}

}  // namespace
}  // namespace ddp::test
