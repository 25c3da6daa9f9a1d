// SPDX-License-Identifier: Apache-2.0
// Every strategy of sharded training, behind one interface for tests.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {

struct Strategy {
  std::string name;
  ShardOptions options;  // with Shard::none: plain data parallelism

  bool is_possible_with(int ranks) const {
    return options.hybrid_ranks == 0 || ranks % options.hybrid_ranks == 0;
  }
  // Ranks of a pair add up first, so their sums round in another order than those of all ranks.
  bool adds_in_order(int ranks) const { return options.hybrid_ranks == 0 || ranks <= 2; }
  bool has_units() const {
    return options.shard == Shard::parameters || (options.shard == Shard::hybrid && on_device());
  }
};

// The simulated devices are slower.
inline std::vector<int> numbers_of_ranks() {
  return on_device() ? std::vector{2, 4} : std::vector{1, 2, 3, 4};
}

inline Strategy without_shards() {
  ShardOptions options;
  options.shard = Shard::none;
  return {"none", options};
}

inline std::vector<Strategy> all_strategies(const std::vector<std::string>& units,
                                            BucketLimits buckets = {40, 300}) {
  const auto make = [&](std::string name, Shard shard) {
    ShardOptions options;
    options.shard = shard;
    options.data_parallel.buckets = buckets;
    if (shard == Shard::parameters || shard == Shard::hybrid) options.units = units;
    return Strategy{std::move(name), options};
  };
  auto keep = make("keep", Shard::parameters);
  keep.options.reshard_after_forward = false;
  auto in_pairs = make("hybrid in pairs", Shard::hybrid);
  in_pairs.options.hybrid_ranks = 2;
  return {make("optimizer", Shard::optimizer),   make("gradients", Shard::gradients),
          make("parameters", Shard::parameters), keep,
          make("hybrid", Shard::hybrid),         in_pairs};
}

// Each rank has all parameters, and exchanges sums of gradients with all others.
inline Strategy hybrid_alone(const std::vector<std::string>& units) {
  auto alone = all_strategies(units)[4];
  alone.name = "hybrid alone";
  alone.options.hybrid_ranks = 1;
  return alone;
}

inline Strategy strategy_called(const std::string& name, const std::vector<std::string>& units) {
  const auto all = all_strategies(units);
  return *std::ranges::find(all, name, &Strategy::name);
}

// One rank's replica and optimizer.
struct Training {
  std::unique_ptr<DistributedDataParallel> replica;
  std::unique_ptr<torch::optim::Optimizer> optimizer;  // destroyed first

  ShardedDataParallel* sharded() const { return dynamic_cast<ShardedDataParallel*>(replica.get()); }
};

using MakeOptimizer =
    std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)>;

inline std::unique_ptr<torch::optim::Optimizer> sgd_of(std::vector<torch::Tensor> parameters) {
  return std::make_unique<torch::optim::SGD>(std::move(parameters),
                                             torch::optim::SGDOptions(0.1).momentum(0.9));
}

// Collective.
inline Training begin_training(torch::nn::Module& module, comm::Group& group,
                               const Strategy& strategy, const MakeOptimizer& make = sgd_of) {
  Training training;
  const auto& options = strategy.options;
  training.optimizer = make(module.parameters());
  if (options.shard == Shard::none || options.shard == Shard::optimizer) {
    training.replica =
        std::make_unique<DistributedDataParallel>(module, group, options.data_parallel);
    if (options.shard == Shard::none) return training;
    training.optimizer = std::make_unique<ShardedOptimizer>(std::move(training.optimizer), group);
    return training;
  }
  auto replica = std::make_unique<ShardedDataParallel>(module, group, options);
  training.optimizer = std::make_unique<ShardedOptimizer>(std::move(training.optimizer), *replica);
  training.replica = std::move(replica);
  return training;
}

// Collective. Copies of the parameters and buffers on the CPU, by name.
inline Values whole_values(const torch::nn::Module& module, const Training& training) {
  const auto whole = training.sharded() == nullptr
                         ? nullptr
                         : std::make_unique<WholeParameters>(*training.sharded());
  return state_of(module);
}

inline void expect_same_bits(const Values& values, const Values& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (const auto& [name, value] : values) {
    EXPECT_TRUE(torch::equal(value, expected.at(name))) << name;
  }
}

// The values with which rank 0 ends after `body`, which is called with the model, a Training and
// the group. `make` returns a pointer to the model.
template <class Make, class Body>
Values values_after(int ranks, const Strategy& strategy, const Make& make, const Body& body,
                    const MakeOptimizer& make_optimizer = sgd_of) {
  Values values;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded(make);
    auto training = begin_training(*net, group, strategy, make_optimizer);
    body(net, training, group);
    auto mine = whole_values(*net, training);
    if (group.rank() == 0) values = std::move(mine);
  });
  return values;
}

// `tolerance` of the largest value of each tensor.
inline void expect_near(const Values& values, const Values& expected, double tolerance) {
  ASSERT_EQ(values.size(), expected.size());
  for (const auto& [name, value] : values) {
    if (value.numel() == 0) continue;
    const auto other = expected.at(name).to(torch::kFloat64);
    const auto error = (value.to(torch::kFloat64) - other).abs().max().item<double>();
    EXPECT_LE(error, tolerance * (1 + other.abs().max().item<double>())) << name;
  }
}

}  // namespace ddp::test
