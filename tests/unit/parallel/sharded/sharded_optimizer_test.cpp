// SPDX-License-Identifier: Apache-2.0
// ShardedOptimizer compared with the optimizer that it divides, with ranks as threads.
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <utility>

#include "ddp_runtime/optim/optimizers.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

using testing::HasSubstr;
using torch::optim::AdamOptions;
using torch::optim::AdamWOptions;
using torch::optim::RMSpropOptions;
using torch::optim::SGDOptions;
using Pointer = std::unique_ptr<torch::optim::Optimizer>;
using Tensors = std::vector<torch::Tensor>;

constexpr int kUpdates = 4;

// A channels-last convolution, a transposed weight, a scalar, a spare layer, and doubles.
struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    register_module("conv", conv);
    register_module("spare", spare);
    register_module("last", last);
    transposed = register_parameter("transposed", torch::randn({18, 5}).t());
    scale = register_parameter("scale", torch::tensor(1.5F));
    const torch::NoGradGuard no_grad;
    conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
    last->to(torch::kFloat64);
  }
  torch::Tensor forward(const torch::Tensor& x, bool uses_spare) {
    auto y = torch::tanh(conv(x)).flatten(1).narrow(1, 0, 18);
    y = torch::linear(y, transposed) * scale;
    if (uses_spare) y = y + torch::tanh(spare(y));
    return last(y.to(torch::kFloat64));
  }

  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 7, 2)};
  torch::nn::Linear spare{5, 5};
  torch::nn::Linear last{5, 3};
  torch::Tensor transposed;
  torch::Tensor scale;
};
TORCH_MODULE(Mixed);

torch::Tensor images(int batch) {
  return on_test_device(torch::sin(torch::arange(2 * 3 * 16, torch::kFloat32) + 5 * batch))
      .view({2, 3, 4, 4});
}

struct Kind {
  std::string name;
  std::function<Pointer(Mixed&)> make;
  bool spare_in_all_steps = true;

  friend std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }
};

template <class Optimizer, class Options>
auto made_with(const Options& options) {
  return [options](Mixed& net) -> Pointer {
    return std::make_unique<Optimizer>(net->parameters(), options);
  };
}

// Options that equal the class's defaults, in a group beside others.
Pointer in_groups(Mixed& net) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(Tensors{net->conv->weight, net->last->bias},
                      std::make_unique<AdamWOptions>(AdamWOptions(0.02).weight_decay(0.3)));
  groups.emplace_back(Tensors{net->transposed, net->scale, net->conv->bias},
                      std::make_unique<AdamWOptions>(AdamWOptions(1e-3).eps(1e-4)));
  return std::make_unique<optim::AdamW>(std::move(groups), AdamWOptions(0.01).weight_decay(0.5));
}

std::vector<Kind> kinds() {
  const auto adamw = AdamWOptions(0.05).weight_decay(0.1);
  const auto momentum = SGDOptions(0.1).momentum(0.9);
  return {
      {"sgd", made_with<optim::SGD>(momentum)},
      {"adam", made_with<optim::Adam>(AdamOptions(0.05).amsgrad(true))},
      {"adamw", made_with<optim::AdamW>(adamw)},
      {"adamw_unused", made_with<optim::AdamW>(adamw), false},
      {"sgd_unused", made_with<optim::SGD>(momentum), false},
      {"libtorch_sgd", made_with<torch::optim::SGD>(momentum)},
      {"libtorch_adamw", made_with<torch::optim::AdamW>(adamw)},
      {"libtorch_rmsprop", made_with<torch::optim::RMSprop>(RMSpropOptions(0.01).momentum(0.5))},
      {"groups", in_groups}};
}

// Values after each step, of rank 0.
Tensors trained_by(const Kind& kind, int ranks, bool sharded) {
  Tensors values;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded([] { return Mixed(); });
    DistributedDataParallel replica(*net, group, {.allow_unused = true});
    Pointer optimizer = kind.make(net);
    if (sharded) optimizer = std::make_unique<ShardedOptimizer>(std::move(optimizer), group);
    for (int i = 0; i < kUpdates; ++i) {
      for (auto& options : optimizer->param_groups()) options.options().set_lr(0.01 * (i + 1));
      optimizer->zero_grad();
      auto step = replica.begin_step();
      const bool uses_spare = kind.spare_in_all_steps || i % 2 == 1;
      step.backward(net->forward(images(i * group.size() + group.rank()), uses_spare)
                        .pow(2)
                        .mean()
                        .to(torch::kFloat32));
      step.apply(*optimizer);
      replica.require_same_parameters();
      if (group.rank() != 0) continue;
      for (const auto& value : on_cpu(net->parameters())) values.push_back(value);
    }
  });
  return values;
}

class ShardedOptimizers : public testing::TestWithParam<Kind> {};

TEST_P(ShardedOptimizers, TrainToTheBitsOfTheWholeOptimizer) {
  torch::set_num_threads(1);
  for (const int ranks : {1, 2, 3, 4}) {
    const auto expected = trained_by(GetParam(), ranks, false);
    const auto values = trained_by(GetParam(), ranks, true);
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_TRUE(torch::equal(values[i], expected[i])) << i << " with " << ranks << " ranks";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShardedOptimizers, testing::ValuesIn(kinds()),
                         [](const auto& param_info) { return param_info.param.name; });

std::int64_t elements_of(const torch::optim::Optimizer& optimizer) {
  std::int64_t elements = 0;
  for (const auto& entry : optimizer.state()) {
    elements += static_cast<const torch::optim::AdamWParamState&>(*entry.second).exp_avg().numel();
  }
  return elements;
}

using OnMixed = std::function<void(Mixed&, ShardedOptimizer&, comm::Group&)>;

void with_sharded_adamw(comm::Group& group, const OnMixed& body) {
  auto net = seeded([] { return Mixed(); });
  ShardedOptimizer optimizer(std::make_unique<torch::optim::AdamW>(net->parameters()), group);
  body(net, optimizer, group);
}

void with_sharded_adamw(int ranks, const OnMixed& body) {
  test::run_ranks(ranks, [&](comm::Group& group) { with_sharded_adamw(group, body); });
}

void set_gradients(Mixed& net) {
  for (auto& p : net->parameters()) p.mutable_grad() = torch::ones_like(p);
}

TEST(ShardedState, IsDividedAmongTheRanks) {
  std::array<std::int64_t, 4> held{};
  with_sharded_adamw(4, [&](Mixed& net, ShardedOptimizer& optimizer, comm::Group& group) {
    set_gradients(net);
    optimizer.step();
    held.at(static_cast<std::size_t>(group.rank())) = elements_of(optimizer.shard());
  });
  const auto net = seeded([] { return Mixed(); });
  std::int64_t all = 0;
  for (const auto& p : net->parameters()) all += p.numel();
  EXPECT_EQ(std::accumulate(held.begin(), held.end(), std::int64_t{0}), all);
  // The weight of the convolution and the transposed one have long rows.
  for (const auto elements : held) EXPECT_NEAR(elements, all / 4, 90) << all;
}

TEST(ShardedStep, TakesAClosureAndTellsAutogradOfTheUpdate) {
  with_sharded_adamw(2, [](Mixed& net, ShardedOptimizer& optimizer, comm::Group&) {
    const auto loss = optimizer.step([&] {
      optimizer.zero_grad();
      auto value = net->forward(images(0), true).sum();
      value.backward();
      return value.detach();
    });
    EXPECT_TRUE(loss.defined());
    const auto squared = net->scale * net->scale;  // keeps the scale for backward
    optimizer.step();
    EXPECT_THAT(error_of([&] { squared.backward(); }), HasSubstr("inplace operation"));
  });
}

TEST(ShardedStep, LeavesGradientsWithTheParameters) {
  with_sharded_adamw(2, [](Mixed& net, ShardedOptimizer& optimizer, comm::Group&) {
    set_gradients(net);
    optimizer.step();
    for (const auto& p : net->parameters())
      EXPECT_TRUE(torch::equal(p.grad(), torch::ones_like(p)));
    for (const auto& group : optimizer.shard().param_groups()) {
      for (const auto& part : group.params()) EXPECT_FALSE(part.grad().defined());
    }
  });
}

// As a program may set them.
void set_gradients_in_order_of_dimensions(Mixed& net) {
  for (auto& p : net->parameters()) {
    const auto values = torch::arange(p.numel(), p.options().requires_grad(false));
    p.mutable_grad() = values.view(p.sizes());
  }
}

TEST(ShardedStep, TakesGradientsInAnotherOrderThanTheParameters) {
  auto whole = seeded([] { return Mixed(); });
  torch::optim::AdamW expected(whole->parameters());
  set_gradients_in_order_of_dimensions(whole);
  expected.step();
  const auto values = on_cpu(whole->parameters());
  with_sharded_adamw(2, [&](Mixed& net, ShardedOptimizer& optimizer, comm::Group&) {
    set_gradients_in_order_of_dimensions(net);
    optimizer.step();
    const auto mine = on_cpu(net->parameters());
    for (std::size_t i = 0; i < mine.size(); ++i)
      EXPECT_TRUE(torch::equal(mine[i], values[i])) << i;
  });
}

TEST(ShardedStep, TakesParametersWithoutElements) {
  test::run_ranks(2, [](comm::Group& group) {
    const auto three = on_test_device(torch::ones({3})).requires_grad_(true);
    const auto none = on_test_device(torch::ones({0}, torch::kFloat64)).requires_grad_(true);
    ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(Tensors{three, none}, 0.5),
                               group);
    for (const auto& p : {three, none}) p.mutable_grad() = torch::ones_like(p);
    optimizer.step();
    EXPECT_TRUE(torch::equal(on_cpu({three})[0], torch::full({3}, 0.5F)));
  });
}

std::string error_of_step(const OnMixed& change) {
  return error_on_each_of_three_ranks([&](comm::Group& ranks) {
    with_sharded_adamw(ranks, [&](Mixed& net, ShardedOptimizer& optimizer, comm::Group& group) {
      set_gradients(net);
      change(net, optimizer, group);
      optimizer.step();
    });
  });
}

TEST(ShardedErrors, NameWhatAStepCannotTake) {
  EXPECT_THAT(error_of_step([](Mixed& net, auto&, auto&) { net->to(torch::kFloat64); }),
              HasSubstr("the memory of parameter 1 of a ShardedOptimizer, of shape [5, 18], was "
                        "replaced, as by Module::to(), set_data() or torch::load()"));
  EXPECT_THAT(error_of_step([](auto&, ShardedOptimizer& optimizer, auto&) {
                optimizer.param_groups()[0].params().push_back(torch::ones({2}));
              }),
              HasSubstr("parameters were added to a ShardedOptimizer, or removed"));
  if (on_device()) return;  // which has no sparse tensors
  EXPECT_THAT(error_of_step([](Mixed& net, auto&, auto&) {
                net->spare->weight.mutable_grad() = torch::ones({5, 5}).to_sparse();
              }),
              HasSubstr("of shape [5, 5], has a sparse gradient"));
}

TEST(ShardedErrors, NameRanksThatWouldMakeDifferentUpdates) {
  const auto text = "ranks 0 and 2 give a ShardedOptimizer different learning rates, or gradients";
  EXPECT_THAT(error_of_step([](auto&, ShardedOptimizer& optimizer, comm::Group& group) {
                if (group.rank() == 2) optimizer.param_groups()[0].options().set_lr(0.5);
              }),
              HasSubstr(text));
  EXPECT_THAT(error_of_step([](Mixed& net, auto&, comm::Group& group) {
                if (group.rank() == 2) net->scale.mutable_grad().reset();
              }),
              HasSubstr(text));
}

TEST(ShardedErrors, NameRanksWhoseParametersAreInAnotherOrder) {
  const auto text = error_on_each_of_three_ranks([](comm::Group& group) {
    auto net = seeded([] { return Mixed(); });
    auto parameters = net->parameters();
    if (group.rank() == 1) std::swap(parameters[0], parameters[1]);
    const ShardedOptimizer optimizer(std::make_unique<torch::optim::SGD>(parameters, 0.1), group);
  });
  EXPECT_THAT(text, HasSubstr("the optimizers of ranks 0 and 1 have different parameters, or in"));
}

TEST(ShardedErrors, NameParametersThatEachRankKeepsForItself) {
  const auto text = error_on_each_of_three_ranks([](comm::Group& group) {
    auto net = seeded([] { return Mixed(); });
    DistributedDataParallel replica(*net, group, {.ignore = {"spare.*"}});
    ShardedOptimizer optimizer(std::make_unique<torch::optim::AdamW>(net->parameters()), group);
    auto step = replica.begin_step();
    step.backward_and_apply(net->forward(images(0), true).mean().to(torch::kFloat32), optimizer);
  });
  EXPECT_THAT(text, HasSubstr("has parameters that each rank keeps for itself"));
}

TEST(ShardedErrors, NameFilesOfLibtorch) {
  with_sharded_adamw(1, [](Mixed&, ShardedOptimizer& optimizer, comm::Group&) {
    torch::serialize::OutputArchive out;
    torch::serialize::InputArchive in;
    EXPECT_THAT(error_of([&] { optimizer.save(out); }), HasSubstr("torch::save() cannot save"));
    EXPECT_THAT(error_of([&] { optimizer.load(in); }), HasSubstr("torch::load() cannot load"));
  });
}

TEST(ShardedStep, LeavesGraphsOfParametersWithoutGradientsUsable) {
  with_sharded_adamw(2, [](Mixed& net, ShardedOptimizer& optimizer, comm::Group&) {
    const auto squared = net->scale * net->scale;
    set_gradients(net);
    net->scale.mutable_grad().reset();
    optimizer.step();
    squared.backward();
    EXPECT_EQ(net->scale.grad().item<float>(), 3);
  });
}

std::string error_of_making(const std::function<Pointer(Mixed&)>& make) {
  return error_on_each_of_three_ranks([&](comm::Group& group) {
    auto net = seeded([] { return Mixed(); });
    const ShardedOptimizer optimizer(make(net), group);
  });
}

TEST(ShardedErrors, NameOptimizersAndParametersThatCannotBeDivided) {
  using torch::optim::SGD;
  EXPECT_THAT(error_of_making(made_with<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1))),
              HasSubstr("ShardedOptimizer divides SGD, Adam, AdamW and RMSprop"));
  EXPECT_THAT(error_of_making([](Mixed& net) {
                auto optimizer = std::make_unique<torch::optim::AdamW>(net->parameters());
                set_gradients(net);
                optimizer->step();
                return optimizer;
              }),
              HasSubstr("has made steps already"));
  EXPECT_THAT(error_of_making([](Mixed&) {
                const auto gaps = on_test_device(torch::ones({4, 6})).narrow(1, 0, 3);
                return std::make_unique<SGD>(Tensors{gaps.detach().requires_grad_(true)}, 0.1);
              }),
              HasSubstr("parameter 1 of the optimizer, of shape [4, 3], cannot be divided"));
  EXPECT_THAT(error_of_making([](Mixed&) {
                const auto all = on_test_device(torch::ones({6}));
                return std::make_unique<SGD>(
                    Tensors{all.narrow(0, 0, 4).detach().requires_grad_(true),
                            all.narrow(0, 3, 3).detach().requires_grad_(true)},
                    0.1);
              }),
              HasSubstr("parameters of the optimizer share memory"));
  EXPECT_THAT(error_of_making([](Mixed&) {
                const auto complex = torch::ones({3}, torch::kComplexFloat).requires_grad_(true);
                return std::make_unique<SGD>(Tensors{complex}, 0.1);
              }),
              HasSubstr("must be a dense tensor of real numbers without gaps"));
}

// ---- float32 masters of short parameters

// The weights after steps of which each is too small for bfloat16, and a write between them.
torch::Tensor trained_in_bf16(comm::Group* group, float written) {
  auto weight = on_test_device(torch::ones({5, 3}, torch::kBFloat16)).requires_grad_();
  auto inner = std::make_unique<optim::SGD>(Tensors{weight}, SGDOptions(0.001));
  inner->keep_masters();
  std::unique_ptr<ShardedOptimizer> sharded;
  if (group != nullptr) sharded = std::make_unique<ShardedOptimizer>(std::move(inner), *group);
  const auto steps = [&](int count) {
    for (int i = 0; i < count; ++i) {
      weight.mutable_grad() = torch::ones_like(weight).detach();
      sharded ? sharded->step() : inner->step();
    }
  };
  steps(5);
  {
    const torch::NoGradGuard no_grad;
    if (written != 0) weight.fill_(written);
  }
  steps(5);
  if (sharded) {
    EXPECT_TRUE(sharded->has_master(weight));
  }
  return weight.detach().cpu();
}

TEST(ShardedMasters, AddUpSmallStepsAndTakeWhatIsWritten) {
  for (const float written : {0.0F, 2.0F}) {
    const auto expected = trained_in_bf16(nullptr, written);
    EXPECT_FALSE(torch::any(expected == 1).item<bool>());
    test::run_ranks(2, [&](comm::Group& group) {
      EXPECT_TRUE(torch::equal(trained_in_bf16(&group, written), expected)) << written;
    });
  }
}

// A checkpoint can be saved after a write, without a step in between.
TEST(ShardedMasters, TakeWhatIsWrittenWithoutAStep) {
  test::run_ranks(2, [](comm::Group& group) {
    auto weight = on_test_device(torch::ones({6, 2}, torch::kBFloat16)).requires_grad_();
    auto frozen = on_test_device(torch::ones({6, 2}, torch::kBFloat16));
    auto inner = std::make_unique<optim::AdamW>(Tensors{weight, frozen}, AdamWOptions(0.1));
    inner->keep_masters();
    ShardedOptimizer optimizer(std::move(inner), group);
    EXPECT_TRUE(optimizer.has_master(weight));
    EXPECT_FALSE(optimizer.has_master(frozen)) << "it is whole, and is not exchanged";
    weight.mutable_grad() = torch::ones_like(weight);
    optimizer.step();
    {
      const torch::NoGradGuard no_grad;
      weight.fill_(0.25);
    }
    const auto master = optimizer.values_of(weight);
    if (master.defined()) {
      EXPECT_TRUE(torch::all(master == 0.25).item<bool>());
    }
  });
}

TEST(ShardedMasters, AreOfTheRowsOfARank) {
  test::run_ranks(3, [](comm::Group& group) {
    auto weight = on_test_device(torch::ones({7, 2}, torch::kBFloat16)).requires_grad_();
    auto inner = std::make_unique<optim::AdamW>(Tensors{weight}, AdamWOptions(0.1));
    inner->keep_masters();
    const ShardedOptimizer optimizer(std::move(inner), group);
    const auto mine = optimizer.values_of(weight);
    EXPECT_EQ(mine.scalar_type(), torch::kFloat32);
    EXPECT_EQ(mine.numel(), optimizer.part_of(weight).numel());
    EXPECT_EQ(group.all_reduce_value(mine.numel(), comm::ReduceOp::sum), weight.numel());
  });
}

}  // namespace
}  // namespace ddp::test
