// SPDX-License-Identifier: Apache-2.0
// Costs of shards whose gradients stay whole until the last micro-batch.
#include <gtest/gtest.h>

#include "ddp_runtime/parallel/sharded/plan/shard_costs.h"
#include "tests/unit/parallel/sharded/plan/sizes_of_units.h"

namespace ddp {
namespace {

using enum ShardStrategy;

TrainingSizes sizes_of_whole_gradients() {
  auto sizes = test::sizes_of_units();
  sizes.fresh_gradients = 60;
  return sizes;
}

// Beside all gradients there are fresh ones, but not those of a bucket or a unit.
TEST(WholeGradients, TakeMemoryInAStepAndAreSentOnce) {
  const auto sizes = sizes_of_whole_gradients();
  RankLayout each{.ranks = 4, .nodes = 4, .micro_batches = 5};
  RankLayout once = each;
  once.reduces_once = true;
  for (const auto strategy : {gradients, parameters, parameters_kept}) {
    const auto costs = predict_costs(strategy, sizes, each);
    const auto whole = predict_costs(strategy, sizes, once);
    EXPECT_EQ(whole.bytes_between_steps, costs.bytes_between_steps) << strategy_name(strategy);
    const std::int64_t together = strategy == gradients ? 120 : 90;
    EXPECT_EQ(whole.bytes_in_step, costs.bytes_in_step - together + 800 + 60)
        << strategy_name(strategy);
    // Units are gathered in each micro-batch all the same.
    EXPECT_EQ(whole.bytes_sent, costs.bytes_sent - 4 * 600) << strategy_name(strategy);
  }
  // Nodes exchange their sums once in any case.
  each.nodes = once.nodes = 2;
  EXPECT_EQ(predict_costs(hybrid, sizes, once).bytes_in_step, 800 + 60);
  EXPECT_EQ(predict_costs(hybrid, sizes, once).bytes_sent,
            predict_costs(hybrid, sizes, each).bytes_sent);
  each.on_gpus = once.on_gpus = true;
  EXPECT_EQ(predict_costs(hybrid, sizes, once).bytes_in_step,
            predict_costs(hybrid, sizes, each).bytes_in_step - 90 + 800 + 60);
}

TEST(WholeGradients, ChangeNothingElsewhere) {
  const auto sizes = sizes_of_whole_gradients();
  for (const auto strategy : {none, optimizer, gradients, parameters, hybrid}) {
    const bool reduces_once_anyway = strategy == none || strategy == optimizer;
    const std::int64_t micro_batches = reduces_once_anyway ? 5 : 1;
    const RankLayout each{.ranks = 4, .nodes = 2, .micro_batches = micro_batches};
    RankLayout once = each;
    once.reduces_once = true;
    const auto costs = predict_costs(strategy, sizes, each);
    const auto whole = predict_costs(strategy, sizes, once);
    EXPECT_EQ(whole.bytes_in_step, costs.bytes_in_step) << strategy_name(strategy);
    EXPECT_EQ(whole.bytes_sent, costs.bytes_sent) << strategy_name(strategy);
  }
}

// They have the type of their sums.
TEST(WholeGradients, HaveTheTypeOfTheirSums) {
  auto sizes = sizes_of_whole_gradients();
  sizes.reduced = ReducedSizes{.sums = 1600, .sent = 1600};
  const RankLayout once{.ranks = 4, .micro_batches = 2, .reduces_once = true};
  EXPECT_EQ(predict_costs(gradients, sizes, once).bytes_in_step, 1600 + 60);
}

}  // namespace
}  // namespace ddp
