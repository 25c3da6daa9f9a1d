// SPDX-License-Identifier: Apache-2.0
// Parameters on a device that one fused operator cannot update together, or not at all. The
// reference is libtorch's optimizer over the same parameters on the CPU.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/torch_compat.h"
#include "tests/unit/fake_device/fake_device_fixture.h"
#include "tests/unit/fake_device/fusing_optimizers.h"

namespace ddp::fake_device {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::OptimizerParamGroup;
using torch::optim::SGDOptions;
using Parameters = std::vector<torch::Tensor>;

// A tensor of the device with the same values and strides, gaps included.
torch::Tensor copy_on_device(const torch::Tensor& tensor, int index = 0) {
  auto copy = torch::empty_strided(tensor.sizes(), tensor.strides(),
                                   tensor.options().device(device(index)));
  return copy.copy_(tensor.detach());
}

// Parameters on the CPU, and the same ones on the device.
struct OnBoth {
  void add(const torch::Tensor& values, int index = 0) {
    on_device.push_back(copy_on_device(values, index).requires_grad_());
    host.push_back(values.detach().requires_grad_());
  }
  void set_gradient(std::size_t i, const torch::Tensor& gradient) {
    host[i].mutable_grad() = gradient;
    on_device[i].mutable_grad() = copy_on_device(gradient, on_device[i].device().index());
  }
  void set_gradients() {
    for (std::size_t i = 0; i < host.size(); ++i) set_gradient(i, torch::randn_like(host[i]));
  }
  void expect_close() const {
    for (std::size_t i = 0; i < host.size(); ++i) {
      const auto is = on_device[i].detach().cpu();
      EXPECT_TRUE(torch::allclose(is, host[i].detach(), 1e-5, 1e-6)) << i << is << host[i];
    }
  }

  Parameters host;
  Parameters on_device;
};

class UnfusedParameters : public FakeDeviceTest {
 protected:
  void SetUp() override {
    FakeDeviceTest::SetUp();
    torch::manual_seed(1);
  }

  using SetGradients = std::function<void(OnBoth&)>;
  static void set_usual_gradients(OnBoth& both) { both.set_gradients(); }

  // Makes some steps of SGD and AdamW, on both.
  template <class Ours, class Theirs>
  static void expect_same_steps(OnBoth both, Ours ours, Theirs theirs,
                                const SetGradients& set_gradients = set_usual_gradients) {
    for (int i = 0; i < 3; ++i) {
      set_gradients(both);
      ours.step();
      theirs.step();
      both.expect_close();
    }
  }
  static void expect_steps_of_libtorch(const std::function<OnBoth()>& make,
                                       const SetGradients& set_gradients = set_usual_gradients) {
    const auto with = [&]<class Ours, class Theirs>(const auto& options) {
      const auto both = make();
      expect_same_steps(both, Fusing<Ours>(both.on_device, options), Theirs(both.host, options),
                        set_gradients);
    };
    with.template operator()<optim::SGD, torch::optim::SGD>(SGDOptions(0.1).weight_decay(0.03));
    with.template operator()<optim::SGD, torch::optim::SGD>(SGDOptions(0.1).momentum(0.9));
    with.template operator()<optim::AdamW, torch::optim::AdamW>(AdamWOptions(0.1));
  }
};

TEST_F(UnfusedParameters, MayHaveGaps) {
  const auto with_gaps = [](const torch::Tensor& wide) { return wide.narrow(1, 1, 3); };
  torch::Tensor memory;
  expect_steps_of_libtorch(
      [&] {
        OnBoth both;
        both.add(torch::randn({5}));
        memory = torch::ones({4, 6}).to(device());
        both.host.push_back(with_gaps(torch::ones({4, 6})).detach().requires_grad_());
        both.on_device.push_back(with_gaps(memory).detach().requires_grad_());
        return both;
      },
      [&](OnBoth& both) {
        both.set_gradient(0, torch::randn({5}));
        both.set_gradient(1, with_gaps(torch::randn({4, 6})));
        EXPECT_TRUE(memory.select(1, 0).cpu().eq(1).all().item<bool>()) << "the gap was written";
        EXPECT_TRUE(memory.select(1, 4).cpu().eq(1).all().item<bool>()) << "the gap was written";
      });
}

TEST_F(UnfusedParameters, MayHaveGradientsInAnotherOrder) {
  expect_steps_of_libtorch(
      [] {
        OnBoth both;
        both.add(torch::randn({2, 3}));
        both.add(torch::randn({2, 3}).t());
        return both;
      },
      [](OnBoth& both) {
        both.set_gradient(0, torch::randn({3, 2}).t());
        both.set_gradient(1, torch::randn({2, 3}).t());
      });
}

TEST_F(UnfusedParameters, MayBeOfSeveralTypes) {
  expect_steps_of_libtorch([] {
    OnBoth both;
    both.add(torch::randn({3}));
    both.add(torch::randn({4}, torch::kFloat64));
    both.add(torch::randn({5}));
    return both;
  });
}

// Only the weights in bfloat16 have masters.
TEST_F(UnfusedParameters, MayHaveMastersBesideOthers) {
  OnBoth both;
  both.add(torch::randn({3}));
  both.add(torch::randn({4}).to(torch::kBFloat16).to(torch::kFloat32));
  const auto weights = both.on_device[1].detach().to(torch::kBFloat16).requires_grad_();
  Fusing<optim::AdamW> ours({both.on_device[0], weights}, AdamWOptions(0.1));
  torch::optim::AdamW theirs(both.host, AdamWOptions(0.1));
  ours.keep_masters();
  for (int i = 0; i < 3; ++i) {
    both.set_gradients();
    both.set_gradient(1, torch::randn({4}).to(torch::kBFloat16).to(torch::kFloat32));
    weights.mutable_grad() = both.on_device[1].grad().to(torch::kBFloat16);
    ours.step();
    theirs.step();
    const auto master = ours.masters()->values_of(weights);
    both.on_device[1].detach().copy_(master);
    both.expect_close();
    EXPECT_TRUE(torch::equal(weights.detach().cpu(), master.cpu().to(torch::kBFloat16)));
  }
}

TEST_F(UnfusedParameters, MayBeComplex) {
  OnBoth both;
  both.add(torch::randn({3}, torch::kComplexFloat));
  both.add(torch::randn({3}));
  const auto options = SGDOptions(0.1).momentum(0.9);
  expect_same_steps(both, Fusing<optim::SGD>(both.on_device, options),
                    torch::optim::SGD(both.host, options));
}

TEST_F(UnfusedParameters, MayHaveStateOfAnotherType) {
  OnBoth both;
  both.add(torch::ones({3}));
  const auto options = SGDOptions(0.1).momentum(0.9);
  Fusing<optim::SGD> ours(both.on_device, options);
  torch::optim::SGD theirs(both.host, options);
  const auto add_state = [](torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
    auto state = std::make_unique<torch::optim::SGDParamState>();
    state->momentum_buffer(torch::ones({3}, parameter.options().dtype(torch::kFloat64)).detach());
    optimizer.state()[torch_compat::state_key(parameter)] = std::move(state);
  };
  add_state(ours, both.on_device[0]);
  add_state(theirs, both.host[0]);
  for (int i = 0; i < 2; ++i) {
    both.set_gradients();
    ours.step();
    theirs.step();
    both.expect_close();
  }
}

TEST_F(UnfusedParameters, MayBeOnSeveralDevices) {
  expect_steps_of_libtorch([] {
    OnBoth both;
    both.add(torch::randn({3}), 0);
    both.add(torch::randn({4}), 1);
    return both;
  });
}

// A flag is on one device, so the host reads it for the parameters of another one.
TEST_F(UnfusedParameters, HostReadsTheFlagForAnotherDevice) {
  OnBoth both;
  both.add(torch::randn({3}), 0);
  both.add(torch::randn({4}), 1);
  Fusing<optim::AdamW> ours(both.on_device, AdamWOptions(0.1));
  torch::optim::AdamW theirs(both.host, AdamWOptions(0.1));
  for (const bool skipped : {false, true, false}) {
    both.set_gradients();
    ours.skip_next_step_if(flag_of(skipped));
    forget_host_waits();
    ours.step();
    EXPECT_EQ(host_wait_names(), std::vector<std::string>{"aten::_local_scalar_dense"});
    ours.settle_step(skipped);
    if (!skipped) theirs.step();
    both.expect_close();
  }
}

template <class Options>
std::vector<OptimizerParamGroup> two_groups(const Parameters& parameters, const Options& first,
                                            const Options& second) {
  std::vector<OptimizerParamGroup> groups;
  groups.emplace_back(Parameters{parameters[0], parameters[2]}, std::make_unique<Options>(first));
  groups.emplace_back(Parameters{parameters[1]}, std::make_unique<Options>(second));
  return groups;
}

TEST_F(UnfusedParameters, GroupsHaveTheirOwnOptions) {
  const auto parameters = [] {
    OnBoth both;
    for (int i = 0; i < 3; ++i) both.add(torch::randn({4}));
    return both;
  };
  const auto random = [](OnBoth& both) { both.set_gradients(); };
  {
    const auto both = parameters();
    const auto groups = [](const Parameters& p) {
      return two_groups(p, AdamWOptions(0.1), AdamWOptions(0.01).weight_decay(0.3));
    };
    expect_same_steps(both, Fusing<optim::AdamW>(groups(both.on_device)),
                      torch::optim::AdamW(groups(both.host)), random);
  }
  const auto both = parameters();
  const auto groups = [](const Parameters& p) {
    return two_groups(p, SGDOptions(0.1).momentum(0.9), SGDOptions(0.01).momentum(0.5));
  };
  expect_same_steps(both, Fusing<optim::SGD>(groups(both.on_device), SGDOptions(0.1)),
                    torch::optim::SGD(groups(both.host), SGDOptions(0.1)), random);
}

// ---- parameters that share memory, whose updates must not run in one kernel

Parameters overlapping(const torch::Tensor& memory) {
  Parameters parameters{memory.narrow(0, 0, 6).detach().requires_grad_(),
                        memory.narrow(0, 4, 6).detach().requires_grad_()};
  for (auto& p : parameters) p.mutable_grad() = torch::ones_like(p).detach();
  return parameters;
}

TEST_F(UnfusedParameters, HostReadsTheFlagIfMemoryIsShared) {
  const auto memory = torch::ones({10}).to(device());
  Fusing<optim::SGD> optimizer(overlapping(memory), SGDOptions(0.25));
  for (const bool skipped : {true, false}) {
    optimizer.skip_next_step_if(flag_of(skipped));
    forget_host_waits();
    optimizer.step();
    EXPECT_EQ(host_wait_names(), std::vector<std::string>{"aten::_local_scalar_dense"});
    optimizer.settle_step(skipped);
    EXPECT_EQ(memory[0].item<float>(), skipped ? 1 : 0.75F);
    EXPECT_EQ(memory[5].item<float>(), skipped ? 1 : 0.5F);
  }
}

TEST_F(UnfusedParameters, AreNotUpdatedInPartsIfMemoryIsShared) {
  Fusing<optim::SGD> optimizer(overlapping(torch::ones({10}).to(device())), SGDOptions(0.25));
  EXPECT_EQ(optimizer.begin_partial_step(), nullptr);
}

// The second one is left to libtorch, whose update would come first in a whole step.
TEST_F(UnfusedParameters, AreNotUpdatedInPartsIfTheRestSharesTheirMemory) {
  const auto memory = torch::ones({10}).to(device());
  const Parameters parameters{memory.narrow(0, 0, 6).detach().requires_grad_(),
                              memory.slice(0, 0, 10, 2).detach().requires_grad_()};
  for (const auto& p : parameters) p.mutable_grad() = torch::ones_like(p).detach();
  Fusing<optim::SGD> optimizer(parameters, SGDOptions(0.25));
  EXPECT_EQ(optimizer.begin_partial_step(), nullptr);
}

TEST_F(UnfusedParameters, MayBeListedTwice) {
  OnBoth both;
  both.add(torch::randn({3}));
  const Parameters ours_twice{both.on_device[0], both.on_device[0]};
  const Parameters theirs_twice{both.host[0], both.host[0]};
  expect_same_steps(both, Fusing<optim::AdamW>(ours_twice, AdamWOptions(0.1)),
                    torch::optim::AdamW(theirs_twice, AdamWOptions(0.1)));
}

}  // namespace
}  // namespace ddp::fake_device
