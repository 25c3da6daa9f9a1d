// SPDX-License-Identifier: Apache-2.0
// Steps of optimizers as parts of a graph: see Note [Steps in graphs].
#include "ddp_runtime/optim/captured_step.h"

#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>

#include <functional>

#include "ddp_runtime/optim/optimizers.h"
#include "tests/unit/error_of.h"
#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::fake_device {
namespace {

using testing::HasSubstr;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

struct CapturedStep : FakeDeviceTest {
  CapturedStep()
      : guard(c10::impl::VirtualGuardImpl(kType).getStreamFromGlobalPool(device(), false)) {}
  c10::StreamGuard guard;
};

torch::Tensor scalar(double value) {
  return torch::full({}, value, torch::dtype(torch::kFloat32).device(device()));
}

// An optimizer of two parameters that have gradients.
template <class Optimizer>
struct Trained {
  template <class Options>
  explicit Trained(const Options& options) : optimizer(parameters, options) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const torch::NoGradGuard no_grad;
      parameters[i].mutable_grad() = torch::full_like(parameters[i], 0.25 + static_cast<double>(i));
    }
  }
  static torch::Tensor parameter(std::int64_t size) {
    return torch::arange(size, torch::dtype(torch::kFloat32).device(device())).requires_grad_();
  }
  // As an eager step that the graph repeats: see fused_update.h.
  void step(const torch::Tensor& skip) {
    optimizer.skip_next_step_if(skip);
    optimizer.step();
    optimizer.settle_step(skip.template item<float>() != 0);
  }
  void set_rate(double rate) {
    for (auto& group : optimizer.param_groups()) group.options().set_lr(rate);
  }
  std::vector<torch::Tensor> parameters = {parameter(3), parameter(5)};
  Optimizer optimizer;
};

template <class Optimizer, class Options>
void expect_replays_like_steps(const Options& options) {
  Trained<Optimizer> eager(options);
  Trained<Optimizer> replayed(options);
  const auto skip = scalar(0);
  eager.step(skip);
  replayed.step(skip);

  const optim::DeviceNumbers numbers{scalar(0), scalar(0)};
  numbers.steps.fill_(replayed.optimizer.steps_made());
  const auto graph = make_graph(device());
  graph->begin_capture();
  replayed.optimizer.skip_next_step_if(skip);
  replayed.optimizer.capture_step(numbers);
  graph->end_capture();

  for (const double rate : {0.5, 0.25, 0.125}) {
    for (const double skipped : {0.0, 1.0}) {
      skip.fill_(skipped);
      eager.set_rate(rate);
      eager.step(skip);
      numbers.learning_rate.fill_(rate);
      graph->replay(0);
      replayed.optimizer.note_replay();
      replayed.optimizer.settle_step(skipped != 0);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(same_bits(replayed.parameters[i], eager.parameters[i])) << rate << skipped;
      }
    }
  }
  EXPECT_EQ(replayed.optimizer.steps_made(), eager.optimizer.steps_made());
  // The host knows as much as after eager steps.
  skip.fill_(0);
  eager.step(skip);
  replayed.set_rate(0.125);
  replayed.step(skip);
  EXPECT_TRUE(same_bits(replayed.parameters[1], eager.parameters[1]));
}

TEST_F(CapturedStep, ReplaysLikeSteps) {
  expect_replays_like_steps<optim::SGD>(SGDOptions(0.1).weight_decay(0.01));
  expect_replays_like_steps<optim::SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true));
  expect_replays_like_steps<optim::Adam>(AdamOptions(0.1).weight_decay(0.01));
  expect_replays_like_steps<optim::Adam>(AdamOptions(0.1).amsgrad(true));
  expect_replays_like_steps<optim::AdamW>(AdamWOptions(0.1));
}

// The weights after a step, a write to them, and a second step, which a graph makes or not.
torch::Tensor weights_after_a_write(bool by_graph) {
  auto weights = torch::ones({4}, torch::dtype(torch::kBFloat16).device(device())).requires_grad_();
  optim::SGD optimizer({weights}, SGDOptions(0.1));
  optimizer.keep_masters();
  const torch::NoGradGuard no_grad;
  weights.mutable_grad() = torch::full_like(weights, 0.5);
  optimizer.step();
  const auto graph = make_graph(device());
  if (by_graph) {
    graph->begin_capture();
    optimizer.capture_step({scalar(0.1), scalar(1)});
    graph->end_capture();
  }
  weights.fill_(3);
  if (by_graph) {
    optimizer.begin_replay();
    graph->replay(0);
    optimizer.note_replay();
  } else {
    optimizer.step();
  }
  return weights;
}

TEST_F(CapturedStep, ReplayTakesWeightsThatTheProgramHasWritten) {
  const auto weights = weights_after_a_write(true);
  EXPECT_TRUE(same_bits(weights, weights_after_a_write(false)));
  EXPECT_GT(weights[0].item<float>(), 2.9);
}

// A step after the capture has a flag of its own, or none.
template <class Optimizer, class Options>
void expect_step_without_the_flag_of_the_graph(const Options& options) {
  Trained<Optimizer> trained(options);
  const auto skip = scalar(0);
  trained.step(skip);
  const optim::DeviceNumbers numbers{scalar(0.1), scalar(1)};
  const auto graph = make_graph(device());
  graph->begin_capture();
  trained.optimizer.skip_next_step_if(skip);
  trained.optimizer.capture_step(numbers);
  graph->end_capture();
  skip.fill_(1);
  const auto before = trained.parameters[0].detach().clone();
  trained.optimizer.step();
  EXPECT_FALSE(same_bits(trained.parameters[0], before));
}

TEST_F(CapturedStep, FlagBelongsToTheGraph) {
  expect_step_without_the_flag_of_the_graph<optim::SGD>(SGDOptions(0.1));
  expect_step_without_the_flag_of_the_graph<optim::Adam>(AdamOptions(0.1));
  expect_step_without_the_flag_of_the_graph<optim::AdamW>(AdamWOptions(0.1));
}

TEST_F(CapturedStep, RefusesWhatAGraphCannotRepeat) {
  const optim::DeviceNumbers numbers{scalar(0.1), scalar(1)};
  Trained<optim::SGD> first(SGDOptions(0.1).momentum(0.9));
  EXPECT_THAT(error_of([&] { first.optimizer.capture_step(numbers); }),
              HasSubstr("has not updated all parameters equally often"));

  Trained<optim::AdamW> later(AdamWOptions(0.1));
  auto gradient = std::exchange(later.parameters[1].mutable_grad(), {});
  later.step(scalar(0));
  later.parameters[1].mutable_grad() = gradient;
  later.step(scalar(0));
  EXPECT_THAT(error_of([&] { later.optimizer.capture_step(numbers); }),
              HasSubstr("has not updated all parameters equally often"));

  Trained<optim::Adam> shared(AdamOptions(0.1));
  shared.step(scalar(0));
  shared.optimizer.param_groups()[0].params().push_back(shared.parameters[0]);
  EXPECT_THAT(error_of([&] { shared.optimizer.capture_step(numbers); }),
              HasSubstr("cannot update all parameters by ATen's fused operators"));

  Trained<optim::AdamW> elsewhere(AdamWOptions(0.1));
  elsewhere.step(scalar(0));
  const optim::DeviceNumbers other{scalar(0.1).to(device(1)), scalar(1).to(device(1))};
  EXPECT_THAT(error_of([&] { elsewhere.optimizer.capture_step(other); }),
              HasSubstr("are on another device"));

  Trained<optim::AdamW> with_gaps(AdamWOptions(0.1));
  with_gaps.step(scalar(0));
  with_gaps.parameters[1].mutable_grad() =
      torch::zeros({10}, torch::device(device())).slice(0, 0, 10, 2);
  EXPECT_THAT(error_of([&] { with_gaps.optimizer.capture_step(numbers); }),
              HasSubstr("cannot update all parameters by ATen's fused operators"));
}

}  // namespace
}  // namespace ddp::fake_device
