// SPDX-License-Identifier: Apache-2.0
// Gradients that are reduced in another type than their own: DataParallelOptions::reduce_type.
#include "ddp_runtime/parallel/reduce_type.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/hooks/compression.h"
#include "tests/unit/parallel/tower.h"

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

// How the ranks divide the model. Plain data parallelism, and the optimizer's state alone, too.
struct Division {
  std::string name;
  Shard shard = Shard::none;
  int hybrid_ranks = 0;
};

const std::vector<Division>& divisions() {
  static const std::vector<Division> all = {
      {"optimizer", Shard::optimizer},    {"gradients", Shard::gradients},
      {"parameters", Shard::parameters},  {"hybrid", Shard::hybrid},
      {"hybrid alone", Shard::hybrid, 1}, {"hybrid in pairs", Shard::hybrid, 2}};
  return all;
}

DataParallelOptions parallel_of(const ReductionTrial& trial) {
  return {.buckets = {100, 200}, .reduce_type = trial.reduce_type, .hook = trial.hook};
}

struct Divided {
  OwnedReplica replica;
  OwnedOptimizer optimizer;
};

Divided divide(Narrow& net, comm::Group& group, const Division& division,
               const ReductionTrial& trial, OwnedOptimizer optimizer) {
  if (division.shard == Shard::none || division.shard == Shard::optimizer) {
    auto plain = std::make_unique<DistributedDataParallel>(*net, group, parallel_of(trial));
    if (division.shard == Shard::optimizer) {
      optimizer = std::make_unique<ShardedOptimizer>(std::move(optimizer), group);
    }
    return {std::move(plain), std::move(optimizer)};
  }
  ShardOptions options{.shard = division.shard, .hybrid_ranks = division.hybrid_ranks};
  if (division.shard != Shard::gradients) options.units = {"blocks.*"};
  options.data_parallel = parallel_of(trial);
  auto sharded = std::make_unique<ShardedDataParallel>(*net, group, options);
  optimizer = std::make_unique<ShardedOptimizer>(std::move(optimizer), *sharded);
  return {std::move(sharded), std::move(optimizer)};
}

torch::Tensor input_of_batch(int batch, torch::ScalarType type) {
  const auto x = torch::arange(5 * kWidth, torch::kFloat32).view({5, kWidth});
  return on_test_device(torch::sin(x * (batch + 1) * 0.37).to(type));
}

torch::Tensor loss_of_batch(Narrow& net, int batch, torch::ScalarType type) {
  return net->forward(input_of_batch(batch, type)).to(torch::kFloat32).pow(2).mean();
}

template <class Sgd>
OwnedOptimizer adding_gradients(Narrow& net) {
  return std::make_unique<Sgd>(net->parameters(), torch::optim::SGDOptions(1));
}

Narrow narrow_in(torch::ScalarType type) {
  auto net = seeded([] { return Narrow(); });
  net->to(type);
  return net;
}

// The values that rank 0 ends with.
Values train_narrow(const ReductionTrial& trial, int ranks, const Division& division = {},
                    int steps = 4) {
  Values values;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = narrow_in(trial.weights);
    auto adamw = std::make_unique<optim::AdamW>(net->parameters(),
                                                torch::optim::AdamWOptions(0.02).weight_decay(0.1));
    adamw->keep_masters();
    const auto [replica, optimizer] = divide(net, group, division, trial, std::move(adamw));
    for (int i = 0; i < steps; ++i) {
      auto step = replica->begin_step(trial.micro_batches);
      for (int micro = 0; micro < trial.micro_batches; ++micro) {
        const int batch = (i * trial.micro_batches + micro) * group.size() + group.rank();
        step.backward(loss_of_batch(net, batch, trial.weights));
      }
      step.apply(*optimizer);
    }
    auto* const sharded = dynamic_cast<ShardedDataParallel*>(&*replica);
    const auto whole = sharded == nullptr ? nullptr : std::make_unique<WholeParameters>(*sharded);
    if (group.rank() == 0) values = values_of(*net);
  });
  return values;
}

void expect_equal(const Values& values, const Values& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (const auto& [name, value] : expected) {
    EXPECT_TRUE(torch::equal(values.at(name), value)) << name;
  }
}

bool all_equal(const Values& a, const Values& b) {
  return std::ranges::all_of(
      a, [&](const auto& entry) { return torch::equal(entry.second, b.at(entry.first)); });
}

const std::vector<ReductionTrial>& other_types() {
  static const std::vector<ReductionTrial> trials = {
      {.weights = torch::kFloat32, .reduce_type = torch::kBFloat16},
      {.weights = torch::kBFloat16, .reduce_type = torch::kFloat32}};
  return trials;
}

TEST(ReduceTypes, AllStrategiesHaveTheBitsOfDataParallelism) {
  torch::set_num_threads(1);
  for (const auto& trial : other_types()) {
    for (const int ranks : {1, 2, 3, 4}) {
      const auto expected = train_narrow(trial, ranks);
      for (const auto& division : divisions()) {
        const int in_a_row = division.hybrid_ranks;
        if (in_a_row > 0 && ranks % in_a_row != 0) continue;
        // Ranks of a pair add up first.
        if (in_a_row > 0 && ranks > 2) continue;
        SCOPED_TRACE(division.name + " with " + std::to_string(ranks) + " ranks, weights in " +
                     c10::toString(trial.weights));
        expect_equal(train_narrow(trial, ranks, division), expected);
      }
    }
  }
}

TEST(ReduceTypes, ChangeTheBits) {
  for (auto trial : other_types()) {
    const auto other = train_narrow(trial, 2);
    const auto alone = train_narrow(trial, 1);
    trial.reduce_type = std::nullopt;
    EXPECT_FALSE(all_equal(other, train_narrow(trial, 2)));
    EXPECT_TRUE(all_equal(alone, train_narrow(trial, 1))) << "a single rank rounds nothing";
  }
}

TEST(ReduceTypes, TypeOfTheGradientsChangesNothing) {
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    for (const auto& division : divisions()) {
      if (division.hybrid_ranks > 0) continue;
      expect_equal(train_narrow({.weights = type, .reduce_type = type}, 2, division),
                   train_narrow({.weights = type}, 2, division));
    }
  }
}

TEST(ReduceTypes, Bf16HasTheBitsOfItsCommunicationHook) {
  expect_equal(train_narrow({.reduce_type = torch::kBFloat16}, 2),
               train_narrow({.hook = hooks::bf16}, 2));
}

// Micro-batches are added up in the longer type.
TEST(ReduceTypes, StrategiesThatReduceEachMicroBatchAreAlike) {
  for (auto trial : other_types()) {
    trial.micro_batches = 3;
    const auto expected = train_narrow(trial, 2, {"gradients", Shard::gradients});
    for (const auto& division : divisions()) {
      if (division.shard == Shard::optimizer) continue;
      // Nodes add up their parts once per step.
      if (division.hybrid_ranks == 1) continue;
      expect_equal(train_narrow(trial, 2, division), expected);
    }
    // A single rank adds up micro-batches only.
    const auto alone = train_narrow(trial, 1);
    for (const auto& division : divisions()) {
      if (division.hybrid_ranks == 2) continue;
      expect_equal(train_narrow(trial, 1, division), alone);
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
  all.push_back({"none", Shard::none});
  for (const auto& division : all) {
    if (division.hybrid_ranks == 2) continue;  // the same as hybrid
    SCOPED_TRACE(division.name);
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = narrow_in(torch::kFloat32);
      const auto [replica, optimizer] = divide(net, group, division, other_types().front(),
                                               adding_gradients<torch::optim::SGD>(net));
      auto step = replica->begin_step();
      step.backward(loss_of_batch(net, group.rank(), torch::kFloat32));
      step.apply(*optimizer);
      auto* const sharded = dynamic_cast<ShardedDataParallel*>(&*replica);
      const auto whole = sharded == nullptr ? nullptr : std::make_unique<WholeParameters>(*sharded);
      for (const auto& [name, value] : values_of(*net)) {
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
    if (division.hybrid_ranks == 2) continue;
    SCOPED_TRACE(division.name);
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = narrow_in(torch::kBFloat16);
      auto sgd = std::make_unique<optim::SGD>(net->parameters(), torch::optim::SGDOptions(1));
      sgd->keep_masters();
      const auto [replica, optimizer] =
          divide(net, group, division, other_types().back(), std::move(sgd));
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
      const auto [replica, optimizer] = divide(net, group, {"gradients", Shard::gradients}, trial,
                                               adding_gradients<torch::optim::SGD>(net));
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
  const auto bytes_of = [](const Division& division, ReduceType type) {
    std::size_t bytes = 0;
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = narrow_in(torch::kFloat32);
      const auto [replica, optimizer] = divide(net, group, division, {.reduce_type = type},
                                               adding_gradients<torch::optim::SGD>(net));
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
  for (const auto shard : {Shard::none, Shard::gradients, Shard::hybrid}) {
    const auto full = bytes_of({"", shard}, std::nullopt);
    EXPECT_GT(full, 0U);
    EXPECT_EQ(bytes_of({"", shard}, torch::kBFloat16) * 2, full);
  }
}

TEST(ReduceTypeErrors, NameRanksWithAnotherType) {
  for (const auto shard : {Shard::none, Shard::gradients}) {
    const auto error = error_of_three_ranks([&](comm::Group& group) {
      auto net = narrow_in(torch::kFloat32);
      const ReduceType type = group.rank() == 1 ? ReduceType(torch::kBFloat16) : std::nullopt;
      divide(net, group, {"", shard}, {.reduce_type = type},
             adding_gradients<torch::optim::SGD>(net));
    });
    EXPECT_THAT(error, HasSubstr("(gradients reduced in bf16)"));
  }
}

TEST(ReduceTypeErrors, NameWhatIsWrong) {
  const auto error_with = [](const ReductionTrial& trial, Shard shard) {
    return error_of_three_ranks([&](comm::Group& group) {
      auto net = narrow_in(torch::kFloat32);
      divide(net, group, {"", shard}, trial, adding_gradients<torch::optim::SGD>(net));
    });
  };
  for (const auto shard : {Shard::none, Shard::gradients}) {
    EXPECT_THAT(error_with({.reduce_type = torch::kHalf}, shard),
                HasSubstr("gradients cannot be reduced in Half"));
    EXPECT_THAT(error_with({.reduce_type = torch::kBFloat16, .hook = hooks::fp16}, shard),
                HasSubstr("does not go together with a reduce type (--reduce-type)"));
  }
  EXPECT_THAT(error_with({.hook = hooks::bf16}, Shard::gradients),
              HasSubstr("or use --reduce-type bf16"));
  for (const auto shard : {Shard::none, Shard::optimizer, Shard::gradients}) {
    EXPECT_THAT(error_of_three_ranks([&](comm::Group& group) {
                  auto net = narrow_in(torch::kBFloat16);
                  const auto [replica, optimizer] =
                      divide(net, group, {"", shard}, {.reduce_type = torch::kFloat32},
                             adding_gradients<optim::SGD>(net));
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
