// SPDX-License-Identifier: Apache-2.0
// Every strategy trains every kind of model to the values of plain data parallelism.
#include <gtest/gtest.h>

#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/optim/optimizers.h"
#include "tests/unit/parallel/sharded/parts.h"
#include "tests/unit/parallel/sharded/strategies.h"

namespace ddp::test {
namespace {

enum class Type : std::uint8_t { fp32, bf16_weights, autocast };

const char* name_of(Type type) {
  return type == Type::fp32 ? "fp32" : type == Type::autocast ? "autocast" : "bf16 weights";
}

torch::Tensor parts_input(Parts& net, int batch) {
  const auto x = torch::sin(torch::arange(4 * kInputs, torch::kFloat32) * (batch + 1) * 0.1);
  return on_test_device(x.view({4, kInputs}).to(net->parameters()[0].scalar_type()));
}

struct PartsRun {
  int steps = 1;
  int ranks = 1;
  int micro_batches = 1;
  Type type = Type::fp32;
};

torch::Tensor loss_of_parts(Parts& net, int batch, Type type) {
  const amp::AutocastGuard guard(
      test_device().type(), type == Type::autocast ? amp::Precision::bf16 : amp::Precision::fp32);
  return net->forward(parts_input(net, batch)).to(torch::kFloat32).sub(0.3).square().mean();
}

// With masters of bf16 weights.
std::unique_ptr<torch::optim::Optimizer> masters_sgd_of(std::vector<torch::Tensor> parameters) {
  auto sgd = std::make_unique<optim::SGD>(std::move(parameters),
                                          torch::optim::SGDOptions(0.1).momentum(0.9));
  sgd->keep_masters();
  return sgd;
}

Parts make_parts(const PartsRow& row, Type type) {
  auto net = row.make();
  if (type == Type::bf16_weights) net->to(torch::kBFloat16);
  return net;
}

// The values of rank 0.
Values train_parts(const PartsRow& row, Strategy strategy, const PartsRun& run) {
  strategy.options.data_parallel.allow_unused = row.allow_unused;
  const auto make = [&] { return make_parts(row, run.type); };
  const auto body = [&](Parts& net, Training& training, comm::Group& group) {
    for (int i = 0; i < run.steps; ++i) {
      auto step = training.replica->begin_step(run.micro_batches);
      for (int micro = 0; micro < run.micro_batches; ++micro) {
        const int batch = (i * run.micro_batches + micro) * group.size() + group.rank();
        step.backward(loss_of_parts(net, batch, run.type));
      }
      step.apply(*training.optimizer);
    }
  };
  return values_after(run.ranks, strategy, make, body, masters_sgd_of);
}

// Of one process that adds up the gradients of all batches of a step.
Values train_parts_alone(const PartsRow& row, const PartsRun& run) {
  auto net = seeded([&] { return make_parts(row, run.type); });
  const auto optimizer = sgd_of(net->parameters());
  const int batches = run.ranks * run.micro_batches;
  for (int i = 0; i < run.steps; ++i) {
    optimizer->zero_grad();
    for (int batch = i * batches; batch < (i + 1) * batches; ++batch) {
      (loss_of_parts(net, batch, run.type) / batches).backward();
    }
    optimizer->step();
  }
  return values_of(*net);
}

// A row of the table, and the number of steps.
class ShardedModels : public testing::TestWithParam<std::tuple<PartsRow, int>> {
 protected:
  ShardedModels() { torch::set_num_threads(1); }

  void SetUp() override {
    if (on_device() && !row_.is_on_devices)
      GTEST_SKIP() << "the simulated device lacks an operator";
  }
  std::vector<Strategy> strategies_for(int ranks) const {
    std::vector<Strategy> strategies;
    for (auto& strategy : all_strategies(row_.units)) {
      // Refused: see ShardedMisuse.
      if (row_.allow_unused && strategy.has_units() && on_device()) continue;
      if (strategy.is_possible_with(ranks)) strategies.push_back(strategy);
    }
    return strategies;
  }

  const PartsRow& row_ = std::get<PartsRow>(GetParam());
  const int steps_ = std::get<int>(GetParam());
};

TEST_P(ShardedModels, HaveTheBitsOfDataParallelism) {
  for (const auto type : {Type::fp32, Type::bf16_weights, Type::autocast}) {
    if (type != Type::fp32 && (!row_.is_in_bf16 || on_device())) continue;
    if (type == Type::autocast && row_.uses_weights_twice) continue;
    for (const int ranks : numbers_of_ranks()) {
      const PartsRun run{.steps = steps_, .ranks = ranks, .type = type};
      const auto expected = train_parts(row_, without_shards(), run);
      for (const auto& strategy : strategies_for(ranks)) {
        SCOPED_TRACE(strategy.name + ", " + std::to_string(ranks) + " ranks, " + name_of(type));
        const auto values = train_parts(row_, strategy, run);
        if (strategy.adds_in_order(ranks)) {
          expect_same_bits(values, expected);
        } else {
          expect_near(values, expected, type == Type::fp32 ? 1e-6 : 0.02);
        }
      }
    }
  }
}

// Divided gradients are reduced in each micro-batch, by all of these strategies alike.
TEST_P(ShardedModels, AccumulateTheSameSums) {
  for (const auto type : {Type::fp32, Type::bf16_weights}) {
    if (type != Type::fp32 && (!row_.is_in_bf16 || on_device())) continue;
    for (const int ranks : {2, 3}) {
      const PartsRun run{.steps = steps_, .ranks = ranks, .micro_batches = 3, .type = type};
      const auto expected = train_parts(row_, without_shards(), run);
      const auto tolerance = type == Type::fp32 ? 1e-6 : 0.02;
      std::optional<Values> divided;
      for (const auto& strategy : strategies_for(ranks)) {
        SCOPED_TRACE(strategy.name + ", " + std::to_string(ranks) + " ranks, " + name_of(type));
        const auto values = train_parts(row_, strategy, run);
        if (strategy.options.shard == Shard::optimizer) {
          expect_same_bits(values, expected);
          continue;
        }
        expect_near(values, expected, tolerance);
        if (divided) expect_same_bits(values, *divided);
        divided = values;
      }
    }
  }
}

// Two pairs of ranks: the sums of a pair are complete when they are added to those of the other.
TEST_P(ShardedModels, AccumulateLikeOneProcess) {
  const PartsRun run{.steps = steps_, .ranks = 4, .micro_batches = 2};
  const auto expected = train_parts_alone(row_, run);
  for (const auto& strategy : strategies_for(run.ranks)) {
    SCOPED_TRACE(strategy.name);
    auto values = train_parts(row_, strategy, run);
    std::erase_if(values, [&](const auto& value) { return !expected.contains(value.first); });
    expect_near(values, expected, 1e-6);
  }
}

std::string name_of_row(const testing::TestParamInfo<ShardedModels::ParamType>& param_info) {
  return std::get<PartsRow>(param_info.param).name;
}

INSTANTIATE_TEST_SUITE_P(Rows, ShardedModels,
                         testing::Combine(testing::ValuesIn(parts_rows()), testing::Values(3)),
                         name_of_row);
INSTANTIATE_TEST_SUITE_P(Full, ShardedModels,
                         testing::Combine(testing::ValuesIn(parts_rows()), testing::Values(20)),
                         name_of_row);

}  // namespace
}  // namespace ddp::test
