// SPDX-License-Identifier: Apache-2.0
// ATen's fused operators update the parameters on a device.
#include "ddp_runtime/optim/optimizers.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <span>
#include <sstream>

#include "ddp_runtime/torch_compat.h"
#include "tests/unit/fake_device/fake_device_fixture.h"
#include "tests/unit/fake_device/fusing_optimizers.h"

namespace ddp::fake_device {
namespace {

using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;
using Tensors = std::vector<torch::Tensor>;
using OptimizerPointer = std::unique_ptr<torch::optim::Optimizer>;

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

Tensors on_device_values(const Twins& twins) {
  Tensors values;
  for (const auto& t : twins.on_device) values.push_back(t.detach().clone());
  return values;
}

// The number of steps in the state of a parameter: -1 without a state, and 0 if it has no number.
std::int64_t step_count(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  const auto found = optimizer.state().find(torch_compat::state_key(parameter));
  if (found == optimizer.state().end()) return -1;
  const auto* state = found->second.get();
  if (const auto* adam = dynamic_cast<const torch::optim::AdamParamState*>(state)) {
    return adam->step();
  }
  const auto* adamw = dynamic_cast<const torch::optim::AdamWParamState*>(state);
  return adamw == nullptr ? 0 : adamw->step();
}

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

// The host learns after each step whether the previous one was skipped. Only in the second step
// must it know whether the momentum has a first value.
TEST_P(FusedOptimizers, SkipFlaggedStepsWithoutAHostWait) {
  for (const bool skips_first : {false, true}) {
    Twins twins({{3}, {4, 5}, {}});
    const auto ours = GetParam().ours(twins.on_device);
    const auto theirs = GetParam().theirs(twins.host);
    const std::vector<bool> skipped{skips_first, skips_first, false, true,
                                    true,        false,       false, true};
    for (std::size_t i = 0; i < skipped.size(); ++i) {
      twins.set_random_gradients();
      skipping(*ours).skip_next_step_if(flag_of(skipped[i]));
      forget_host_waits();
      ours->step();
      if (i > 3) {
        EXPECT_EQ(host_wait_names(), std::vector<std::string>()) << "step " << i;
      }
      if (!skipped[i]) theirs->step();
      twins.expect_close();
      if (i > 0) skipping(*ours).settle_step(skipped[i - 1]);
    }
    skipping(*ours).settle_step(skipped.back());
    // A usual step.
    twins.set_random_gradients();
    ours->step();
    theirs->step();
    twins.expect_close();
    ASSERT_EQ(ours->state().size(), theirs->state().size());
    for (std::size_t i = 0; i < twins.host.size(); ++i) {
      EXPECT_EQ(step_count(*ours, twins.on_device[i]), step_count(*theirs, twins.host[i]));
    }
  }
}

TEST_P(FusedOptimizers, SkippedFirstStepLeavesNoState) {
  Twins twins({{3}, {4, 5}});
  const auto ours = GetParam().ours(twins.on_device);
  const auto before = on_device_values(twins);
  for (int i = 0; i < 2; ++i) {
    twins.set_random_gradients();
    skipping(*ours).skip_next_step_if(flag_of(true));
    ours->step();
  }
  skipping(*ours).settle_step(true);
  skipping(*ours).settle_step(true);
  EXPECT_TRUE(ours->state().empty());
  for (std::size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(same_bits(twins.on_device[i], before[i]));
  }
}

// Parameters whose steps began at different times need operators of their own. Not all have taken
// part in the step whose flag is not known. Before step 3, the first two have taken part in two
// steps each.
TEST_P(FusedOptimizers, CountTheStepsOfEachParameterThatWereNotSkipped) {
  for (const bool flagged : {false, true}) {
    Twins twins({{3}, {4}, {5}});
    const auto ours = GetParam().ours(twins.on_device);
    const auto theirs = GetParam().theirs(twins.host);
    const std::vector<std::set<std::size_t>> steps{{1, 2, 3, 4}, {0, 1, 3, 4}, {0, 2, 4}};
    for (std::size_t i = 0; i < 5; ++i) {
      for (std::size_t k = 0; k < 3; ++k) {
        twins.host[k].mutable_grad() = torch::Tensor();
        twins.on_device[k].mutable_grad() = torch::Tensor();
        if (steps[k].contains(i)) twins.set_random_gradient(k);
      }
      const bool skipped = flagged && i == 2;
      if (flagged) skipping(*ours).skip_next_step_if(flag_of(skipped));
      ours->step();
      if (!skipped) theirs->step();
      twins.expect_close();
      if (flagged && i > 0) skipping(*ours).settle_step(i - 1 == 2);
    }
  }
}

void step_in_parts(torch::optim::Optimizer& optimizer, const Tensors& parameters) {
  const auto step = dynamic_cast<optim::StepsInParts&>(optimizer).begin_partial_step();
  ASSERT_TRUE(step);
  for (const auto& parameter : parameters) step->update(std::span(&parameter, 1));
  step->finish();
}

TEST_P(FusedOptimizers, StepInPartsWithoutAHostWait) {
  Twins twins({{3}, {4, 5}, {0}, {}});
  const auto ours = GetParam().ours(twins.on_device);
  const auto theirs = GetParam().theirs(twins.host);
  for (int i = 0; i < 4; ++i) {
    twins.set_random_gradients();
    forget_host_waits();
    step_in_parts(*ours, {twins.on_device[1], twins.on_device[2]});
    EXPECT_EQ(host_wait_names(), std::vector<std::string>());
    theirs->step();
    twins.expect_close();
  }
}

// One conversion of all gradients, one update of all masters, one rounding of all weights.
TEST_P(FusedOptimizers, UpdateMastersOfShortWeightsWithoutAHostWait) {
  Tensors host;
  Tensors on_device;
  for (const auto& size : {std::vector<std::int64_t>{50}, {6, 7}}) {
    on_device.push_back(torch::randn(size).to(torch::kBFloat16).to(device()).requires_grad_(true));
    host.push_back(on_device.back().detach().cpu().to(torch::kFloat32).requires_grad_(true));
  }
  const auto ours = GetParam().ours(on_device);
  const auto theirs = GetParam().theirs(host);
  auto& keeper = dynamic_cast<optim::KeepsMasters&>(*ours);
  keeper.keep_masters();
  for (int i = 0; i < 4; ++i) {
    const bool skipped = i == 2;
    for (std::size_t k = 0; k < host.size(); ++k) {
      const auto gradient = (torch::randn(host[k].sizes()) * 1e-2).to(torch::kBFloat16);
      on_device[k].mutable_grad() = gradient.to(device());
      host[k].mutable_grad() = gradient.to(torch::kFloat32);
    }
    if (i >= 2) skipping(*ours).skip_next_step_if(flag_of(skipped));
    forget_host_waits();
    ours->step();
    EXPECT_EQ(host_wait_names(), std::vector<std::string>()) << "step " << i;
    if (i >= 2) skipping(*ours).settle_step(skipped);
    if (!skipped) theirs->step();
    for (std::size_t k = 0; k < host.size(); ++k) {
      const auto master = keeper.masters()->values_of(on_device[k]).cpu();
      EXPECT_TRUE(torch::allclose(master, host[k].detach(), 1e-5, 1e-6)) << i << ", " << k;
      EXPECT_TRUE(torch::equal(on_device[k].detach().cpu(), master.to(torch::kBFloat16)));
    }
  }
}

// On a device, masters notice a new version and other memory. A write through `.data()` leaves no
// trace, and the next step undoes it.
TEST_P(FusedOptimizers, MastersTakeWritesThatLeaveATrace) {
  auto weights = torch::randn({50}).to(torch::kBFloat16).to(device()).requires_grad_(true);
  const auto reference = weights.detach().cpu().to(torch::kFloat32).requires_grad_(true);
  const auto ours = GetParam().ours({weights});
  const auto theirs = GetParam().theirs({reference});
  dynamic_cast<optim::KeepsMasters&>(*ours).keep_masters();
  const auto step = [&] {
    const auto gradient = (torch::randn({50}) * 1e-2).to(torch::kBFloat16);
    weights.mutable_grad() = gradient.to(device());
    reference.mutable_grad() = gradient.to(torch::kFloat32);
    ours->step();
    theirs->step();
    const auto expected = reference.detach().to(torch::kBFloat16);
    EXPECT_TRUE(torch::allclose(weights.detach().cpu(), expected, 1e-2, 1e-3));
  };
  step();
  const torch::NoGradGuard no_grad;
  weights.data().fill_(100);
  step();
  weights.clamp_(-0.5, 0.5);
  reference.clamp_(-0.5, 0.5);
  step();
  const auto loaded = torch::randn({50}).to(torch::kBFloat16);
  weights.set_data(loaded.to(device()));
  reference.copy_(loaded);
  step();
}

TEST_F(FakeDeviceTest, MastersFollowTheirWeightsToADevice) {
  const auto weights = torch::ones({4}, torch::kBFloat16).requires_grad_(true);
  Fusing<optim::SGD> optimizer({weights}, SGDOptions(0.5));
  optimizer.keep_masters();
  weights.mutable_grad() = torch::ones_like(weights);
  optimizer.step();
  weights.mutable_grad().reset();
  const auto moved = weights.detach().to(device());
  weights.unsafeGetTensorImpl()->shallow_copy_from(moved.getIntrusivePtr());
  weights.mutable_grad() = torch::ones_like(weights);
  optimizer.step();
  EXPECT_TRUE(torch::equal(weights.detach().cpu(), torch::zeros({4}, torch::kBFloat16)));
}

// Steps without a flag wait for the flags before them, and settle_step() still follows.
TEST_P(FusedOptimizers, UsualStepMayFollowBeforeTheFlagIsKnown) {
  for (const bool in_parts : {false, true}) {
    Twins twins({{3}, {4, 5}});
    const auto ours = GetParam().ours(twins.on_device);
    const auto theirs = GetParam().theirs(twins.host);
    for (int i = 0; i < 6; ++i) {
      twins.set_random_gradients();
      const bool flagged = i % 3 != 2;
      const bool skipped = i % 3 == 1;
      if (flagged) skipping(*ours).skip_next_step_if(flag_of(skipped));
      in_parts && !flagged ? step_in_parts(*ours, twins.on_device)
                           : static_cast<void>(ours->step());
      if (!skipped) theirs->step();
      twins.expect_close();
    }
    for (int i = 0; i < 6; ++i) {
      if (i % 3 != 2) skipping(*ours).settle_step(i % 3 == 1);
    }
    for (std::size_t i = 0; i < twins.host.size(); ++i) {
      EXPECT_EQ(step_count(*ours, twins.on_device[i]), step_count(*theirs, twins.host[i]));
    }
  }
}

// One parameter is on the CPU, so the host decides.
TEST_P(FusedOptimizers, HostDecidesWhatTheOperatorsCannot) {
  Twins twins({{3}, {4, 5}});
  const auto reference = twins.host[1].detach().clone().requires_grad_(true);
  const auto ours = GetParam().ours({twins.on_device[0], reference});
  const auto theirs = GetParam().theirs(twins.host);
  for (int i = 0; i < 4; ++i) {
    twins.set_random_gradients();
    reference.mutable_grad() = twins.host[1].grad().clone();
    const bool skipped = i % 2 == 0;
    skipping(*ours).skip_next_step_if(flag_of(skipped));
    forget_host_waits();
    ours->step();
    EXPECT_EQ(host_wait_names(), std::vector<std::string>{"aten::_local_scalar_dense"});
    skipping(*ours).settle_step(skipped);
    if (!skipped) theirs->step();
    EXPECT_TRUE(
        torch::allclose(twins.on_device[0].detach().cpu(), twins.host[0].detach(), 1e-5, 1e-6));
    EXPECT_TRUE(torch::allclose(reference.detach(), twins.host[1].detach(), 1e-5, 1e-6));
  }
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

}  // namespace
}  // namespace ddp::fake_device
