// SPDX-License-Identifier: Apache-2.0
// Gradients that are reduced in another type than their own: DataParallelOptions::reduce_type.
#include "ddp_runtime/parallel/buckets/reduce_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/hooks/compression.h"
#include "tests/unit/parallel/sharded/strategies.h"
#include "tests/unit/parallel/sharded/tower.h"

namespace ddp::test {
namespace {

using testing::HasSubstr;

// Its parameters can be bfloat16 on any device.
struct NarrowImpl : torch::nn::Module {
  NarrowImpl() {
    for (int i = 0; i < 3; ++i) blocks->push_back(torch::nn::Linear(kWidth, kWidth));
    register_module("blocks", blocks);
    register_module("head", head);
  }
  torch::Tensor forward(torch::Tensor x) {
    for (std::size_t i = 0; i < blocks->size(); ++i) {
      x = torch::tanh(unit(blocks->ptr<torch::nn::LinearImpl>(i))(x));
    }
    return head(x);
  }
  torch::nn::ModuleList blocks;
  torch::nn::Linear head{kWidth, 3};
};
TORCH_MODULE(Narrow);

struct ReductionTrial {
  torch::ScalarType weights = torch::kFloat32;
  ReduceType reduce_type = {};
  CommHook hook = {};
  int micro_batches = 1;
};

const std::vector<std::string> kBlocks = {"blocks.*"};

std::vector<Strategy> divisions() {
  auto all = all_strategies(kBlocks);
  all.push_back(hybrid_alone(kBlocks));
  return all;
}

Strategy with(Strategy strategy, const ReductionTrial& trial) {
  strategy.options.data_parallel = {
      .buckets = {100, 200}, .reduce_type = trial.reduce_type, .hook = trial.hook};
  return strategy;
}

// Plain data parallelism, and divided gradients.
std::vector<Strategy> two_divisions() {
  return {without_shards(), strategy_called("gradients", kBlocks)};
}

torch::Tensor input_of_batch(int batch, torch::ScalarType type) {
  const auto x = torch::arange(5 * kWidth, torch::kFloat32).view({5, kWidth});
  return on_test_device(torch::sin(x * (batch + 1) * 0.37).to(type));
}

torch::Tensor loss_of_batch(Narrow& net, int batch, torch::ScalarType type) {
  return net->forward(input_of_batch(batch, type)).to(torch::kFloat32).pow(2).mean();
}

template <class Sgd>
std::unique_ptr<torch::optim::Optimizer> adding_gradients(std::vector<torch::Tensor> parameters) {
  return std::make_unique<Sgd>(std::move(parameters), torch::optim::SGDOptions(1));
}

Narrow make_narrow(torch::ScalarType type) {
  Narrow net;
  net->to(type);
  return net;
}

Narrow narrow_in(torch::ScalarType type) {
  return seeded([&] { return make_narrow(type); });
}

// The values that rank 0 ends with.
Values train_narrow(const ReductionTrial& trial, int ranks,
                    const Strategy& strategy = without_shards()) {
  const auto adamw = [](std::vector<torch::Tensor> parameters) {
    auto optimizer = std::make_unique<optim::AdamW>(
        std::move(parameters), torch::optim::AdamWOptions(0.02).weight_decay(0.1));
    optimizer->keep_masters();
    return optimizer;
  };
  const auto body = [&](Narrow& net, Training& training, comm::Group& group) {
    for (int i = 0; i < 4; ++i) {
      auto step = training.replica->begin_step(trial.micro_batches);
      for (int micro = 0; micro < trial.micro_batches; ++micro) {
        const int batch = (i * trial.micro_batches + micro) * group.size() + group.rank();
        step.backward(loss_of_batch(net, batch, trial.weights));
      }
      step.apply(*training.optimizer);
    }
  };
  return values_after(
      ranks, with(strategy, trial), [&] { return make_narrow(trial.weights); }, body, adamw);
}

const std::vector<ReductionTrial>& other_types() {
  static const std::vector<ReductionTrial> trials = {
      {.weights = torch::kFloat32, .reduce_type = torch::kBFloat16},
      {.weights = torch::kBFloat16, .reduce_type = torch::kFloat32}};
  return trials;
}

TEST(ReduceTypes, ChangeTheBits) {
  for (auto trial : other_types()) {
    const auto other = train_narrow(trial, 2);
    const auto alone = train_narrow(trial, 1);
    trial.reduce_type = std::nullopt;
    EXPECT_FALSE(same_bits(other, train_narrow(trial, 2)));
    EXPECT_TRUE(same_bits(alone, train_narrow(trial, 1))) << "a single rank rounds nothing";
  }
}

TEST(ReduceTypes, TypeOfTheGradientsChangesNothing) {
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    for (const auto& division : divisions()) {
      if (division.options.hybrid_ranks > 0) continue;
      expect_same_bits(train_narrow({.weights = type, .reduce_type = type}, 2, division),
                       train_narrow({.weights = type}, 2, division));
    }
  }
}

TEST(ReduceTypes, Bf16HasTheBitsOfItsCommunicationHook) {
  expect_same_bits(train_narrow({.reduce_type = torch::kBFloat16}, 2),
                   train_narrow({.hook = hooks::bf16}, 2));
}

// Micro-batches are added up in the longer type.
TEST(ReduceTypes, StrategiesThatReduceEachMicroBatchAreAlike) {
  for (auto trial : other_types()) {
    trial.micro_batches = 3;
    const auto expected = train_narrow(trial, 2, strategy_called("gradients", kBlocks));
    for (const auto& division : divisions()) {
      if (division.options.shard == Shard::optimizer) continue;
      // Nodes add up their parts once per step.
      if (division.options.hybrid_ranks == 1) continue;
      expect_same_bits(train_narrow(trial, 2, division), expected);
    }
    // A single rank adds up micro-batches only.
    const auto alone = train_narrow(trial, 1);
    for (const auto& division : divisions()) {
      if (division.options.hybrid_ranks == 2) continue;
      expect_same_bits(train_narrow(trial, 1, division), alone);
    }
    for (const auto& [name, value] : train_narrow(trial, 2)) {
      EXPECT_TRUE(torch::allclose(value, expected.at(name), 2e-2, 2e-2)) << name;
    }
  }
}

// --- One step of SGD with a learning rate of 1 on two ranks, element by element.

// The gradients of the mean over two ranks that the batch contributes.
Values contribution(int batch, torch::ScalarType type) {
  Values gradients;
  test::run_ranks(1, [&](comm::Group& /*alone*/) {
    auto net = narrow_in(type);
    const auto loss = loss_of_batch(net, batch, type);
    loss.backward(torch::full_like(loss, 0.5));
    gradients = gradients_of(*net);
  });
  return gradients;
}

TEST(ReduceTypes, Bf16RoundsEachContributionAndTheSum) {
  const auto first = contribution(0, torch::kFloat32);
  const auto second = contribution(1, torch::kFloat32);
  const auto start = values_of(*narrow_in(torch::kFloat32));
  const auto rounded = [](const torch::Tensor& x) {
    return x.to(torch::kBFloat16).to(torch::kFloat32);
  };
  auto all = divisions();
  all.push_back(without_shards());
  for (const auto& division : all) {
    if (division.options.hybrid_ranks == 2) continue;  // the same as hybrid
    SCOPED_TRACE(division.name);
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = narrow_in(torch::kFloat32);
      const auto training = begin_training(*net, group, with(division, other_types().front()),
                                           adding_gradients<torch::optim::SGD>);
      auto step = training.replica->begin_step();
      step.backward(loss_of_batch(net, group.rank(), torch::kFloat32));
      step.apply(*training.optimizer);
      for (const auto& [name, value] : whole_values(*net, training)) {
        const auto& a = first.at(name);
        const auto& b = second.at(name);
        EXPECT_TRUE(torch::equal(value, start.at(name) - rounded(rounded(a) + rounded(b)))) << name;
        // Half a unit in the last of 8 bits, for each contribution and for the sum.
        const auto bound = (a.abs() + b.abs()) / 128;
        EXPECT_TRUE(
            ((rounded(rounded(a) + rounded(b)) - (a + b)).abs() <= bound).all().item<bool>());
      }
    });
  }
}

// The masters get what bfloat16 would round away.
TEST(ReduceTypes, Fp32SumsOfBf16GradientsReachTheMastersUnrounded) {
  const auto first = contribution(0, torch::kBFloat16);
  const auto second = contribution(1, torch::kBFloat16);
  const auto start = values_of(*narrow_in(torch::kBFloat16));
  for (const auto& division : divisions()) {
    if (division.options.hybrid_ranks == 2) continue;
    SCOPED_TRACE(division.name);
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = narrow_in(torch::kBFloat16);
      const auto [replica, optimizer] = begin_training(
          *net, group, with(division, other_types().back()), [](std::vector<torch::Tensor> all) {
            auto sgd = std::make_unique<optim::SGD>(std::move(all), torch::optim::SGDOptions(1));
            sgd->keep_masters();
            return sgd;
          });
      auto step = replica->begin_step();
      step.backward(loss_of_batch(net, group.rank(), torch::kBFloat16));
      step.apply(*optimizer);
      auto& sharded = dynamic_cast<ShardedOptimizer&>(*optimizer);
      bool is_finer = false;
      for (const auto& item : net->named_parameters()) {
        const auto values = sharded.values_of(item.value());
        if (!values.defined()) continue;
        ASSERT_EQ(values.scalar_type(), torch::kFloat32);
        const auto sum =
            first.at(item.key()).to(torch::kFloat32) + second.at(item.key()).to(torch::kFloat32);
        const auto expected = (start.at(item.key()).to(torch::kFloat32) - sum).view({-1});
        const auto rows = sharded.division_of(item.value());
        const auto mine = expected.narrow(0, static_cast<std::int64_t>(rows.first), values.numel());
        EXPECT_TRUE(torch::equal(values.cpu(), mine)) << item.key();
        is_finer = is_finer || !torch::equal(sum, sum.to(torch::kBFloat16).to(torch::kFloat32));
      }
      EXPECT_TRUE(is_finer);
    });
  }
}

TEST(ReduceTypes, GradientsHaveTheTypeOfTheirSum) {
  test::run_ranks(2, [&](comm::Group& group) {
    for (const auto& trial : other_types()) {
      auto net = narrow_in(trial.weights);
      const auto [replica, optimizer] =
          begin_training(*net, group, with(strategy_called("gradients", kBlocks), trial),
                         adding_gradients<torch::optim::SGD>);
      auto step = replica->begin_step();
      step.backward(loss_of_batch(net, group.rank(), trial.weights));
      auto& sharded = dynamic_cast<ShardedOptimizer&>(*optimizer);
      ASSERT_FALSE(sharded.gradients().empty());
      for (const auto& gradient : sharded.gradients()) {
        EXPECT_EQ(gradient.scalar_type(), torch::kFloat32);
      }
    }
  });
}

// More elements than the blocks in which a step is made.
TEST(ReduceTypes, MastersTakeFloat32Gradients) {
  test::run_ranks(1, [](comm::Group& /*alone*/) {
    const auto start = on_test_device(torch::sin(torch::arange(12000, torch::kFloat32)))
                           .view({3, 4000})
                           .to(torch::kBFloat16);
    auto half = start.clone().requires_grad_();
    auto full = start.to(torch::kFloat32).requires_grad_();
    optim::AdamW with_masters({half}, torch::optim::AdamWOptions(0.01));
    with_masters.keep_masters();
    optim::AdamW plain({full}, torch::optim::AdamWOptions(0.01));
    for (int i = 1; i < 4; ++i) {
      const auto gradient = torch::cos(start.to(torch::kFloat32) * 37 * i);
      half.mutable_grad() = gradient;
      full.mutable_grad() = gradient;
      with_masters.step();
      plain.step();
      EXPECT_TRUE(torch::equal(with_masters.masters()->values_of(half), full.detach())) << i;
      EXPECT_TRUE(torch::equal(half.detach(), full.detach().to(torch::kBFloat16))) << i;
    }
  });
}

TEST(ReduceTypes, BytesThatAreReduced) {
  const auto bytes_of = [](const Strategy& strategy, ReduceType type) {
    std::size_t bytes = 0;
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = narrow_in(torch::kFloat32);
      const auto [replica, optimizer] =
          begin_training(*net, group, with(strategy, {.reduce_type = type}));
      auto step = replica->begin_step();
      step.backward(loss_of_batch(net, group.rank(), torch::kFloat32));
      if (group.rank() != 0) return;
      for (const auto& span : replica->communication()) {
        bytes += span.bytes;
      }
    });
    return bytes;
  };
  if (on_device()) GTEST_SKIP() << "collectives of a device are not over yet";
  for (const auto& strategy : {without_shards(), strategy_called("gradients", kBlocks),
                               strategy_called("hybrid", kBlocks)}) {
    const auto full = bytes_of(strategy, std::nullopt);
    EXPECT_GT(full, 0U);
    EXPECT_EQ(bytes_of(strategy, torch::kBFloat16) * 2, full);
  }
}

TEST(ReduceTypeErrors, NameRanksWithAnotherType) {
  for (const auto& strategy : two_divisions()) {
    const auto error = error_of_three_ranks([&](comm::Group& group) {
      auto net = narrow_in(torch::kFloat32);
      const ReduceType type = group.rank() == 1 ? ReduceType(torch::kBFloat16) : std::nullopt;
      begin_training(*net, group, with(strategy, {.reduce_type = type}));
    });
    EXPECT_THAT(error, HasSubstr("(gradients reduced in bf16)"));
  }
}

TEST(ReduceTypeErrors, NameWhatIsWrong) {
  const auto error_with = [](const ReductionTrial& trial, const Strategy& strategy) {
    return error_of_three_ranks([&](comm::Group& group) {
      auto net = narrow_in(torch::kFloat32);
      begin_training(*net, group, with(strategy, trial));
    });
  };
  for (const auto& strategy : two_divisions()) {
    EXPECT_THAT(error_with({.reduce_type = torch::kHalf}, strategy),
                HasSubstr("gradients cannot be reduced in Half"));
    EXPECT_THAT(error_with({.reduce_type = torch::kBFloat16, .hook = hooks::fp16}, strategy),
                HasSubstr("does not go together with a reduce type (--reduce-type)"));
  }
  EXPECT_THAT(error_with({.hook = hooks::bf16}, strategy_called("gradients", kBlocks)),
              HasSubstr("or use --reduce-type bf16"));
  auto three_divisions = two_divisions();
  three_divisions.push_back(strategy_called("optimizer", kBlocks));
  for (const auto& strategy : three_divisions) {
    EXPECT_THAT(error_of_three_ranks([&](comm::Group& group) {
                  auto net = narrow_in(torch::kBFloat16);
                  const auto [replica, optimizer] =
                      begin_training(*net, group, with(strategy, {.reduce_type = torch::kFloat32}),
                                     adding_gradients<optim::SGD>);
                  auto step = replica->begin_step();
                  step.backward(loss_of_batch(net, group.rank(), torch::kBFloat16));
                  step.apply(*optimizer);
                }),
                HasSubstr("call keep_masters() of an optimizer of ddp::optim"));
  }
  EXPECT_THAT(error_of_three_ranks([](comm::Group& group) {
                torch::nn::Embedding table(torch::nn::EmbeddingOptions(8, 2).sparse(true));
                const DistributedDataParallel replica(*table, group,
                                                      {.reduce_type = torch::kBFloat16});
              }),
              HasSubstr("sparse gradients are exchanged in their own type"));
  EXPECT_THAT(error_of([] { parse_reduce_type("fp16"); }),
              HasSubstr("--reduce-type must be auto, fp32 or bf16, not 'fp16'"));
}

}  // namespace
}  // namespace ddp::test
