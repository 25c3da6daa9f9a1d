// SPDX-License-Identifier: Apache-2.0
// ATen's fused operators update the parameters on a device.
#include "ddp_runtime/optim/optimizers.h"

#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "ddp_runtime/torch_compat.h"
#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::fake_device {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;
using Tensors = std::vector<torch::Tensor>;
using OptimizerPointer = std::unique_ptr<torch::optim::Optimizer>;

// Our optimizers fuse on CUDA only. These do so on the fake device.
template <class Base>
class Fusing : public Base {
 public:
  using Base::Base;

 protected:
  bool fuses(torch::DeviceType type) const override { return type == kType; }
};

struct Recipe {
  std::string name;
  std::function<OptimizerPointer(Tensors)> theirs;
  std::function<OptimizerPointer(Tensors)> ours;
};

template <class Theirs, class Ours, class Options>
Recipe recipe(std::string name, const Options& options) {
  return {std::move(name),
          [options](Tensors p) { return std::make_unique<Theirs>(std::move(p), options); },
          [options](Tensors p) { return std::make_unique<Fusing<Ours>>(std::move(p), options); }};
}

std::vector<Recipe> recipes() {
  using namespace torch::optim;
  return {recipe<SGD, optim::SGD>("sgd", SGDOptions(0.1).weight_decay(0.03)),
          recipe<SGD, optim::SGD>("sgd_momentum", SGDOptions(0.1).momentum(0.9).dampening(0.2)),
          recipe<SGD, optim::SGD>("sgd_nesterov", SGDOptions(0.1).momentum(0.9).nesterov(true)),
          recipe<Adam, optim::Adam>("adam", AdamOptions(0.01).weight_decay(0.03)),
          recipe<Adam, optim::Adam>("adam_amsgrad", AdamOptions(0.01).amsgrad(true)),
          recipe<AdamW, optim::AdamW>("adamw", AdamWOptions(0.01).weight_decay(0.1)),
          recipe<AdamW, optim::AdamW>("adamw_amsgrad", AdamWOptions(0.01).amsgrad(true))};
}

// Parameters on the device and the same ones on the CPU.
struct Twins {
  explicit Twins(std::initializer_list<std::vector<std::int64_t>> sizes) {
    for (const auto& size : sizes) {
      host.push_back(torch::randn(size).requires_grad_(true));
      on_device.push_back(host.back().detach().to(device()).requires_grad_(true));
    }
  }
  void set_random_gradient(std::size_t i) {
    host[i].mutable_grad() = torch::randn(host[i].sizes());
    on_device[i].mutable_grad() = host[i].grad().to(device());
  }
  void set_random_gradients() {
    for (std::size_t i = 0; i < host.size(); ++i) set_random_gradient(i);
  }
  void expect_close() const {
    for (std::size_t i = 0; i < host.size(); ++i) {
      EXPECT_TRUE(torch::allclose(on_device[i].detach().cpu(), host[i].detach(), 1e-5, 1e-6)) << i;
    }
  }

  Tensors host;
  Tensors on_device;
};

class FusedOptimizers : public FakeDeviceTest, public testing::WithParamInterface<Recipe> {
 protected:
  void SetUp() override {
    FakeDeviceTest::SetUp();
    torch::manual_seed(1);
  }
};

INSTANTIATE_TEST_SUITE_P(All, FusedOptimizers, testing::ValuesIn(recipes()),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(FusedOptimizers, AgreeWithLibtorchWithoutAHostWait) {
  Twins twins({{3}, {4, 5}, {0}, {}});
  const auto ours = GetParam().ours(twins.on_device);
  const auto theirs = GetParam().theirs(twins.host);
  for (int i = 0; i < 4; ++i) {
    twins.set_random_gradients();
    forget_host_waits();
    ours->step();
    EXPECT_EQ(host_wait_names(), std::vector<std::string>());
    theirs->step();
    twins.expect_close();
  }
}

// Parameters whose steps began at different times need operators of their own.
TEST_P(FusedOptimizers, CountTheStepsOfEachParameter) {
  Twins twins({{3}, {4}, {5}});
  const auto ours = GetParam().ours(twins.on_device);
  const auto theirs = GetParam().theirs(twins.host);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t begun = 0; begun <= i; ++begun) twins.set_random_gradient(begun);
    ours->step();
    theirs->step();
    twins.expect_close();
  }
}

TEST_P(FusedOptimizers, ResumeFromAFileOfLibtorchs) {
  Twins twins({{3}, {4, 5}});
  const auto theirs = GetParam().theirs(twins.host);
  const auto before = GetParam().theirs(twins.on_device);
  for (int i = 0; i < 2; ++i) {
    twins.set_random_gradients();
    theirs->step();
    before->step();
  }
  std::stringstream file;
  torch::save(*before, file);
  const auto ours = GetParam().ours(twins.on_device);
  torch::load(*ours, file);
  for (auto& entry : ours->state()) {  // torch::load() reads to the CPU
    if (auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(entry.second.get())) {
      sgd->momentum_buffer(sgd->momentum_buffer().to(device()));
    } else if (auto* adam = dynamic_cast<torch::optim::AdamParamState*>(entry.second.get())) {
      adam->exp_avg(adam->exp_avg().to(device()));
      adam->exp_avg_sq(adam->exp_avg_sq().to(device()));
      if (adam->max_exp_avg_sq().defined())
        adam->max_exp_avg_sq(adam->max_exp_avg_sq().to(device()));
    } else if (auto* adamw = dynamic_cast<torch::optim::AdamWParamState*>(entry.second.get())) {
      adamw->exp_avg(adamw->exp_avg().to(device()));
      adamw->exp_avg_sq(adamw->exp_avg_sq().to(device()));
      if (adamw->max_exp_avg_sq().defined()) {
        adamw->max_exp_avg_sq(adamw->max_exp_avg_sq().to(device()));
      }
    }
  }
  for (int i = 0; i < 2; ++i) {
    twins.set_random_gradients();
    theirs->step();
    ours->step();
  }
  twins.expect_close();
}

TEST_P(FusedOptimizers, UpdateParametersOnTheCpuToo) {
  Twins twins({{3}, {4, 5}});
  const auto reference = Tensors{twins.host[0].detach().clone().requires_grad_(true),
                                 twins.host[1].detach().clone().requires_grad_(true)};
  // One on the device, one on the CPU.
  const auto ours = GetParam().ours({twins.on_device[0], twins.host[1]});
  const auto theirs = GetParam().theirs(reference);
  for (int i = 0; i < 3; ++i) {
    twins.set_random_gradients();
    for (std::size_t k = 0; k < 2; ++k) reference[k].mutable_grad() = twins.host[k].grad().clone();
    ours->step();
    theirs->step();
  }
  EXPECT_TRUE(
      torch::allclose(twins.on_device[0].detach().cpu(), reference[0].detach(), 1e-5, 1e-6));
  EXPECT_TRUE(same_bits(twins.host[1], reference[1]));
}

class FusedAdamW : public FakeDeviceTest {};

// The same bits as the operator, so the operator it is.
TEST_F(FusedAdamW, CallsTheOperatorOfATen) {
  torch::manual_seed(1);
  Twins twins({{300}, {20, 30}});
  Fusing<optim::AdamW> ours(twins.on_device, AdamWOptions(0.01).weight_decay(0.1));
  Tensors averages;
  Tensors squares;
  for (const auto& p : twins.host) {
    averages.push_back(torch::zeros_like(p).detach());
    squares.push_back(torch::zeros_like(p).detach());
  }
  const torch::NoGradGuard no_grad;
  for (int step = 1; step <= 3; ++step) {
    twins.set_random_gradients();
    ours.step();
    const Tensors steps(2, torch::full({}, step, torch::kFloat32));
    at::_fused_adamw_(twins.host, {twins.host[0].grad(), twins.host[1].grad()}, averages, squares,
                      {}, steps, 0.01, 0.9, 0.999, 0.1, 1e-8, false, false);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(same_bits(twins.on_device[i], twins.host[i]));
    const auto& state = static_cast<const torch::optim::AdamWParamState&>(
        *ours.state().at(torch_compat::state_key(twins.on_device[i])));
    EXPECT_EQ(state.step(), 3);
    EXPECT_TRUE(same_bits(state.exp_avg(), averages[i]));
    EXPECT_TRUE(same_bits(state.exp_avg_sq(), squares[i]));
  }
}

// The fused operators of other kinds of devices are unknown.
TEST_F(FusedAdamW, OtherDevicesAreLeftToLibtorch) {
  torch::manual_seed(1);
  Twins twins({{30, 10}});
  optim::AdamW ours(twins.on_device, AdamWOptions(0.01));
  torch::optim::AdamW theirs(twins.host, AdamWOptions(0.01));
  for (int i = 0; i < 3; ++i) {
    twins.set_random_gradients();
    ours.step();
    theirs.step();
  }
  EXPECT_TRUE(same_bits(twins.on_device[0], twins.host[0]));
}

}  // namespace
}  // namespace ddp::fake_device
