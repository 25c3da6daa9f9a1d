// SPDX-License-Identifier: Apache-2.0
// ShardedDataParallel compared with DistributedDataParallel, with ranks as threads.
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "ddp_runtime/optim/optimizers.h"
#include "tests/unit/parallel/tower.h"

namespace ddp::test {
namespace {

constexpr int kSteps = 4;

struct Trial {
  std::string name;
  std::function<void(TowerImpl&)> change = [](TowerImpl&) {};
  int micro_batches = 1;
  bool allow_unused = false;
  // Whether a rank uses the spare unit in a step.
  std::function<bool(int rank, int step)> uses_spare = [](int, int) { return true; };

  friend std::ostream& operator<<(std::ostream& out, const Trial& trial) {
    return out << trial.name;
  }
};

std::vector<std::pair<std::string, ShardOptions>> strategies() {
  ShardOptions gradients;
  gradients.shard = Shard::gradients;
  gradients.data_parallel.buckets = {40, 300};
  auto keep = parameters_in({"blocks.*", "spare"});
  keep.reshard_after_forward = false;
  auto hybrid = in_units();
  hybrid.shard = Shard::hybrid;
  hybrid.data_parallel.buckets = {40, 300};
  auto in_pairs = hybrid;
  in_pairs.hybrid_ranks = 2;
  auto alone = hybrid;
  alone.hybrid_ranks = 1;
  return {{"gradients", gradients},
          {"hybrid", hybrid},
          {"hybrid in pairs", in_pairs},
          {"hybrid alone", alone},
          {"parameters", parameters_in({"blocks.*", "spare"})},
          {"nested", parameters_in({"blocks.1", "spare"})},
          {"keep", keep}};
}

Values train(const Trial& trial, int ranks, const ShardOptions* shards) {
  Values values;
  test::run_ranks(ranks, [&](comm::Group& group) {
    auto net = seeded([] { return Tower(); });
    trial.change(*net);
    OwnedReplica replica;
    OwnedOptimizer optimizer = std::make_unique<optim::AdamW>(
        net->parameters(), torch::optim::AdamWOptions(0.05).weight_decay(0.1));
    if (shards == nullptr) {
      replica = std::make_unique<DistributedDataParallel>(
          *net, group, DataParallelOptions{.allow_unused = trial.allow_unused});
    } else {
      auto options = *shards;
      options.data_parallel.allow_unused = trial.allow_unused;
      auto sharded = std::make_unique<ShardedDataParallel>(*net, group, options);
      optimizer = std::make_unique<ShardedOptimizer>(std::move(optimizer), *sharded);
      replica = std::move(sharded);
    }
    for (int i = 0; i < kSteps; ++i) {
      auto step = replica->begin_step(trial.micro_batches);
      for (int micro = 0; micro < trial.micro_batches; ++micro) {
        const int batch = (i * trial.micro_batches + micro) * group.size() + group.rank();
        const auto scores = net->forward(numbers_of(batch), trial.uses_spare(group.rank(), i));
        step.backward(loss_of_tower(scores, batch));
      }
      step.apply(*optimizer);
    }
    const auto whole =
        shards == nullptr
            ? nullptr
            : std::make_unique<WholeParameters>(dynamic_cast<ShardedDataParallel&>(*replica));
    if (group.rank() == 0) values = values_of(*net);
  });
  return values;
}

class ShardedTraining : public testing::TestWithParam<Trial> {};

TEST_P(ShardedTraining, HasTheBitsOfDataParallelism) {
  torch::set_num_threads(1);
  for (const int ranks : {1, 2, 3, 4}) {
    const auto expected = train(GetParam(), ranks, nullptr);
    for (const auto& [name, options] : strategies()) {
      // Refused: see ShardedErrors.
      if (on_device() && GetParam().allow_unused && options.shard != Shard::gradients) continue;
      if (options.hybrid_ranks > 0 && ranks % options.hybrid_ranks != 0) continue;
      SCOPED_TRACE(name + " with " + std::to_string(ranks) + " ranks");
      const auto values = train(GetParam(), ranks, &options);
      ASSERT_EQ(values.size(), expected.size());
      for (const auto& [parameter, value] : expected) {
        // Ranks of a pair add up first, and one rank has no memory that is added up in order.
        const bool same_order =
            options.hybrid_ranks == 0 || ranks == options.hybrid_ranks || ranks == 2;
        if (GetParam().micro_batches == 1 && same_order) {
          EXPECT_TRUE(torch::equal(values.at(parameter), value)) << parameter;
        } else {
          EXPECT_TRUE(torch::allclose(values.at(parameter), value, 1e-4, 1e-5)) << parameter;
        }
      }
    }
  }
}

std::vector<Trial> trials() {
  const auto only_even = [](int rank, int) { return rank % 2 == 0; };
  const auto in_odd_steps = [](int, int step) { return step % 2 == 1; };
  return {
      {.name = "plain"},
      {.name = "called_twice",
       .change =
           [](TowerImpl& net) {
             net.calls = {0, 1, 1, 2, 0};
           }},
      {.name = "recomputed", .change = [](TowerImpl& net) { net.recompute = true; }},
      {.name = "frozen_block",
       .change =
           [](TowerImpl& net) {
             for (auto& p : net.blocks[1]->parameters()) p.requires_grad_(false);
           }},
      {.name = "partly_frozen",
       .change =
           [](TowerImpl& net) {
             net.tokens->weight.requires_grad_(false);
             net.blocks->ptr<BlockImpl>(0)->expand->weight.requires_grad_(false);
             net.blocks->ptr<BlockImpl>(2)->scale.requires_grad_(false);
           }},
      {.name = "micro_batches", .micro_batches = 3},
      {.name = "unused_on_a_rank", .allow_unused = true, .uses_spare = only_even},
      {.name = "unused_everywhere",
       .allow_unused = true,
       .uses_spare = [](int, int) { return false; }},
      {.name = "unused_in_steps", .allow_unused = true, .uses_spare = in_odd_steps},
      {.name = "block_of_doubles",
       .change =
           [](TowerImpl& net) {
             net.blocks->ptr<BlockImpl>(1)->scale.set_data(
                 net.blocks->ptr<BlockImpl>(1)->scale.to(torch::kFloat64));
           }},
  };
}

INSTANTIATE_TEST_SUITE_P(Trials, ShardedTraining, testing::ValuesIn(trials()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace ddp::test
