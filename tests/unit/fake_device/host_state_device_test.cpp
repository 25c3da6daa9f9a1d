// SPDX-License-Identifier: Apache-2.0
// Optimizers of parameters on a device whose state is on the host, compared with the same ones
// whose state is on the device. The fixture fails if two streams access memory in no order.
#include "ddp_runtime/optim/offload/host_state.h"

#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/errors.h"
#include "ddp_runtime/torch_compat.h"
#include "tests/unit/error_of.h"
#include "tests/unit/fake_device/fake_device_fixture.h"
#include "tests/unit/fake_device/fusing_optimizers.h"
#include "tests/unit/fake_device/streams.h"

namespace ddp::fake_device {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;
using Tensors = std::vector<torch::Tensor>;

struct HostRecipe {
  std::string name;
  std::function<std::unique_ptr<torch::optim::Optimizer>(Tensors)> make;
};

template <class Optimizer, class Options>
HostRecipe host_recipe(std::string name, const Options& options) {
  return {std::move(name), [options](Tensors parameters) {
            return std::make_unique<Fusing<Optimizer>>(std::move(parameters), options);
          }};
}

std::vector<HostRecipe> host_recipes() {
  return {host_recipe<optim::SGD>("sgd", SGDOptions(0.1)),
          host_recipe<optim::SGD>("sgd_momentum", SGDOptions(0.1).momentum(0.9).dampening(0.2)),
          host_recipe<optim::Adam>("adam_amsgrad", AdamOptions(0.01).amsgrad(true)),
          host_recipe<optim::AdamW>("adamw", AdamWOptions(0.01).weight_decay(0.1))};
}

optim::KeepsMasters& keeper(torch::optim::Optimizer& optimizer) {
  return dynamic_cast<optim::KeepsMasters&>(optimizer);
}

// The tensors of all parameters' state.
Tensors state_of(torch::optim::Optimizer& optimizer, const Tensors& parameters) {
  Tensors tensors;
  const auto add = [&](const torch::Tensor& tensor) {
    if (tensor.defined()) tensors.push_back(tensor);
  };
  for (const auto& parameter : parameters) {
    const auto found = optimizer.state().find(torch_compat::state_key(parameter));
    if (found == optimizer.state().end()) continue;
    auto* const state = found->second.get();
    if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(state)) add(sgd->momentum_buffer());
    const auto add_adam = [&](auto* adam) {
      if (adam == nullptr) return;
      add(adam->exp_avg());
      add(adam->exp_avg_sq());
      add(adam->max_exp_avg_sq());
    };
    add_adam(dynamic_cast<torch::optim::AdamParamState*>(state));
    add_adam(dynamic_cast<torch::optim::AdamWParamState*>(state));
  }
  return tensors;
}

// The same parameters twice: `ours` have their state on the host. Windows end within them.
class HostPair {
 public:
  static constexpr std::int64_t kWindow = 15'000;

  HostPair(const HostRecipe& recipe, torch::ScalarType type) {
    torch::manual_seed(3);
    const auto add = [&](const torch::Tensor& values) {
      ours_.push_back(values.to(type).to(device()).requires_grad_(true));
      theirs_.push_back(ours_.back().detach().clone().requires_grad_(true));
    };
    add(torch::randn({40'000}));
    add(torch::randn({30}));  // too small
    add(torch::randn({130, 150}).t());
    our_optimizer_ = recipe.make(ours_);
    their_optimizer_ = recipe.make(theirs_);
    if (type != torch::kFloat32) {
      keeper(*our_optimizer_).keep_masters();
      keeper(*their_optimizer_).keep_masters();
    }
    keeper(*our_optimizer_).offload_state(std::make_unique<optim::HostState>(kWindow));
  }

  void set_gradients() {
    for (std::size_t i = 0; i < ours_.size(); ++i) {
      theirs_[i].mutable_grad() = torch::randn_like(theirs_[i]).mul_(0.01).detach();
      ours_[i].mutable_grad() = theirs_[i].grad().clone();
    }
  }
  void set_gradient(std::size_t i, const torch::Tensor& gradient) {
    theirs_[i].mutable_grad() = gradient;
    ours_[i].mutable_grad() = gradient;
  }
  void expect_same() {
    for (std::size_t i = 0; i < ours_.size(); ++i) {
      EXPECT_TRUE(same_bits(ours_[i], theirs_[i])) << i;
    }
    optim::await_state(*our_optimizer_);
    const auto a = state_of(*our_optimizer_, ours_);
    const auto b = state_of(*their_optimizer_, theirs_);
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(same_bits(a[i], b[i])) << "state " << i;
      EXPECT_EQ(a[i].is_cpu(), a[i].numel() >= optim::HostState::kLeastValues);
      EXPECT_FALSE(b[i].is_cpu());
    }
  }

  const Tensors& ours() const { return ours_; }
  torch::optim::Optimizer& our_optimizer() { return *our_optimizer_; }
  torch::optim::Optimizer& their_optimizer() { return *their_optimizer_; }

 private:
  Tensors ours_;
  Tensors theirs_;
  std::unique_ptr<torch::optim::Optimizer> our_optimizer_;
  std::unique_ptr<torch::optim::Optimizer> their_optimizer_;
};

class StateOnTheHost : public FakeDeviceTest, public testing::WithParamInterface<HostRecipe> {};

INSTANTIATE_TEST_SUITE_P(All, StateOnTheHost, testing::ValuesIn(host_recipes()),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(StateOnTheHost, TrainsToTheSameBitsWithoutAHostWait) {
  HostPair pair(GetParam(), torch::kFloat32);
  for (int i = 0; i < 4; ++i) {
    pair.set_gradients();
    if (i == 1) pair.set_gradient(2, {});
    forget_host_waits();
    pair.our_optimizer().step();
    EXPECT_EQ(host_wait_names(), std::vector<std::string>());
    pair.their_optimizer().step();
    if (i != 2) pair.expect_same();  // the third step follows the second one at once
  }
}

TEST_P(StateOnTheHost, AllowsPartialStepsAndMasters) {
  HostPair pair(GetParam(), torch::kBFloat16);
  for (int i = 0; i < 3; ++i) {
    pair.set_gradients();
    pair.their_optimizer().step();
    const auto step = dynamic_cast<optim::StepsInParts&>(pair.our_optimizer()).begin_partial_step();
    ASSERT_NE(step, nullptr);
    step->update(Tensors{pair.ours()[2]});
    step->finish();
    pair.expect_same();
  }
}

TEST_P(StateOnTheHost, AllowsFlagsThatSkipSteps) {
  HostPair pair(GetParam(), torch::kFloat32);
  for (int i = 0; i < 5; ++i) {
    const bool skipped = i == 0 || i == 3;
    pair.set_gradients();
    for (auto* optimizer : {&pair.our_optimizer(), &pair.their_optimizer()}) {
      skipping(*optimizer).skip_next_step_if(flag_of(skipped));
      optimizer->step();
      skipping(*optimizer).settle_step(skipped);
    }
    pair.expect_same();
  }
}

// Its memory has other values until the copy has arrived.
TEST_F(FakeDeviceTest, TheHostHasTheStateAfterAwaiting) {
  HostPair pair(host_recipes()[1], torch::kFloat32);
  pair.set_gradients();
  pair.our_optimizer().step();
  const auto gradient = pair.ours()[0].grad().cpu();
  const auto state = state_of(pair.our_optimizer(), pair.ours()).front();
  ASSERT_TRUE(state.is_cpu());
  forget_host_waits();
  optim::await_state(pair.our_optimizer());
  EXPECT_EQ(host_waits(), 1);
  EXPECT_TRUE(torch::equal(state, gradient));
}

TEST_F(FakeDeviceTest, AGraphCannotReadAStateOnTheHost) {
  HostPair pair(host_recipes()[3], torch::kFloat32);
  pair.set_gradients();
  pair.our_optimizer().step();
  const auto numbers = [] {
    return torch::zeros({}, torch::TensorOptions(torch::kFloat32).device(device()));
  };
  EXPECT_THAT(error_of([&] {
                dynamic_cast<optim::StepsInGraphs&>(pair.our_optimizer())
                    .capture_step({.learning_rate = numbers(), .steps = numbers()});
              }),
              testing::HasSubstr("the optimizer's state is on the host"));
}

}  // namespace
}  // namespace ddp::fake_device
