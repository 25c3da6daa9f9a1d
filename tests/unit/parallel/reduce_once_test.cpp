// SPDX-License-Identifier: Apache-2.0
// Micro-batches whose whole gradients are kept and reduced once: ShardOptions::reduce_once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "ddp_runtime/optim/optimizers.h"
#include "tests/unit/parallel/tower.h"

namespace ddp::test {
namespace {

constexpr int kStepsOfSeveral = 3;
constexpr int kMicroBatches = 3;

struct SeveralBatches {
  std::string name;
  std::function<void(TowerImpl&)> change = [](TowerImpl&) {};
  bool allow_unused = false;
  // Whether a micro-batch uses the spare unit.
  std::function<bool(int micro)> uses_spare = [](int) { return true; };
  // How many micro-batches a rank has.
  std::function<int(int rank)> batches = [](int) { return kMicroBatches; };
  std::optional<torch::ScalarType> reduce_type = {};

  friend std::ostream& operator<<(std::ostream& out, const SeveralBatches& trial) {
    return out << trial.name;
  }
};

std::vector<std::pair<std::string, ShardOptions>> divided_gradients() {
  ShardOptions gradients{.shard = Shard::gradients};
  auto keep = in_units();
  keep.reshard_after_forward = false;
  auto hybrid = in_units();
  hybrid.shard = Shard::hybrid;
  auto alone = hybrid;
  alone.hybrid_ranks = 1;
  std::vector<std::pair<std::string, ShardOptions>> all = {{"gradients", gradients},
                                                           {"parameters", in_units()},
                                                           {"keep", keep},
                                                           {"hybrid", hybrid},
                                                           {"hybrid alone", alone}};
  for (auto& [name, options] : all) {
    options.reduce_once = true;
    options.data_parallel.buckets = {40, 300};
  }
  return all;
}

struct EndOfRun {
  Values values;
  std::vector<std::string> reduced;  // labels of the last step's reductions
};

EndOfRun train_several(const SeveralBatches& trial, int ranks, const ShardOptions* shards) {
  EndOfRun end;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    trial.change(*net);
    OwnedReplica replica;
    OwnedOptimizer optimizer = std::make_unique<optim::AdamW>(
        net->parameters(), torch::optim::AdamWOptions(0.05).weight_decay(0.1));
    auto parallel = shards == nullptr ? DataParallelOptions() : shards->data_parallel;
    parallel.allow_unused = trial.allow_unused;
    parallel.reduce_type = trial.reduce_type;
    if (shards == nullptr) {
      replica = std::make_unique<DistributedDataParallel>(*net, group, parallel);
    } else {
      auto options = *shards;
      options.data_parallel = parallel;
      auto sharded = std::make_unique<ShardedDataParallel>(*net, group, options);
      optimizer = std::make_unique<ShardedOptimizer>(std::move(optimizer), *sharded);
      replica = std::move(sharded);
    }
    for (int i = 0; i < kStepsOfSeveral; ++i) {
      auto step = replica->begin_step(kMicroBatches);
      for (int micro = 0; micro < trial.batches(group.rank()); ++micro) {
        const int batch = (i * kMicroBatches + micro) * group.size() + group.rank();
        const auto scores = net->forward(numbers_of(batch), trial.uses_spare(micro));
        step.backward(loss_of_tower(scores, batch));
      }
      if (!step.complete()) step.without_data();
      step.apply(*optimizer);
    }
    const auto whole =
        shards == nullptr
            ? nullptr
            : std::make_unique<WholeParameters>(dynamic_cast<ShardedDataParallel&>(*replica));
    if (group.rank() != 0) return;
    end.values = values_of(*net);
    for (const auto& span : replica->communication()) {
      if (span.label.starts_with("gradients of")) end.reduced.push_back(span.label);
    }
  });
  return end;
}

class ReduceOnce : public testing::TestWithParam<SeveralBatches> {};

TEST_P(ReduceOnce, HasTheBitsOfDataParallelism) {
  torch::set_num_threads(1);
  for (const int ranks : {1, 2, 3}) {
    const auto expected = train_several(GetParam(), ranks, nullptr).values;
    for (const auto& [name, options] : divided_gradients()) {
      // Refused: see ShardedErrors.
      if (on_device() && GetParam().allow_unused && options.shard != Shard::gradients) continue;
      if (options.hybrid_ranks > 0 && ranks > 2) continue;  // adds up in another order
      SCOPED_TRACE(name + " with " + std::to_string(ranks) + " ranks");
      const auto values = train_several(GetParam(), ranks, &options).values;
      ASSERT_EQ(values.size(), expected.size());
      for (const auto& [parameter, value] : expected) {
        EXPECT_TRUE(torch::equal(values.at(parameter), value)) << parameter;
      }
    }
  }
}

std::vector<SeveralBatches> several_batches() {
  return {
      {.name = "plain"},
      {.name = "called_twice",
       .change =
           [](TowerImpl& net) {
             net.calls = {0, 1, 1, 2, 0};
           }},
      {.name = "recomputed", .change = [](TowerImpl& net) { net.recompute = true; }},
      {.name = "partly_frozen",
       .change =
           [](TowerImpl& net) {
             net.tokens->weight.requires_grad_(false);
             net.blocks->ptr<BlockImpl>(0)->expand->weight.requires_grad_(false);
           }},
      {.name = "unused_in_the_last",
       .allow_unused = true,
       .uses_spare = [](int micro) { return micro == 0; }},
      {.name = "no_data_in_the_last",
       .batches = [](int rank) { return rank == 1 ? kMicroBatches - 1 : kMicroBatches; }},
      {.name = "no_data_at_all", .batches = [](int rank) { return rank == 1 ? 0 : kMicroBatches; }},
      {.name = "reduced_in_bf16", .reduce_type = torch::kBFloat16},
  };
}

INSTANTIATE_TEST_SUITE_P(Trials, ReduceOnce, testing::ValuesIn(several_batches()),
                         [](const auto& param_info) { return param_info.param.name; });

// And each gradient is sent once.
TEST(ReduceOnceTraffic, IsThatOfOneMicroBatch) {
  if (on_device()) GTEST_SKIP() << "collectives of a device are not over yet";
  for (auto [name, options] : divided_gradients()) {
    if (options.hybrid_ranks == 1) continue;  // which reduces once in any case
    const auto once = train_several({}, 2, &options).reduced;
    options.reduce_once = false;
    const auto each = train_several({}, 2, &options).reduced;
    EXPECT_EQ(once.size() * kMicroBatches, each.size()) << name;
  }
}

TEST(ReduceOnceGradients, AreWholeUntilTheLastMicroBatch) {
  test::run_ranks(2, [](comm::Group& group) {
    for (const auto& [name, options] : divided_gradients()) {
      auto net = seeded([] { return Tower(); });
      ShardedDataParallel replica(*net, group, options);
      auto step = replica.begin_step(2);
      step.backward(loss_of_tower(net->forward(numbers_of(group.rank())), 0));
      for (const auto& parameter : net->parameters()) {
        ASSERT_TRUE(parameter.grad().defined());
        EXPECT_EQ(parameter.grad().sizes(), parameter.sizes());
      }
      step.backward(loss_of_tower(net->forward(numbers_of(group.rank())), 1));
      for (const auto& parameter : net->parameters()) EXPECT_FALSE(parameter.grad().defined());
    }
  });
}

TEST(ReduceOnceErrors, NameTheParameterWithoutAGradient) {
  for (const auto& [name, options] : divided_gradients()) {
    if (options.hybrid_ranks > 0) continue;  // three ranks
    const auto error = error_of_three_ranks([&shards = options](comm::Group& group) {
      auto net = seeded([] { return Tower(); });
      ShardedDataParallel replica(*net, group, shards);
      auto step = replica.begin_step(2);
      step.backward(loss_of_tower(net->forward(numbers_of(0)), 0));
      step.backward(loss_of_tower(net->forward(numbers_of(1), /*uses_spare=*/false), 1));
    });
    EXPECT_THAT(error, testing::HasSubstr("spare.")) << name;
  }
}

}  // namespace
}  // namespace ddp::test
