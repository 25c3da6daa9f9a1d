// SPDX-License-Identifier: Apache-2.0
// Costs of shards whose gradients are reduced in another type than that of the parameters.
#include <gtest/gtest.h>

#include "ddp_runtime/parallel/sharded/plan/shard_costs.h"
#include "tests/unit/parallel/sharded/plan/sizes_of_units.h"

namespace ddp {
namespace {

using enum ShardStrategy;

TrainingSizes sizes_with(const ReducedSizes& reduced) {
  auto sizes = test::sizes_of_units();
  sizes.reduced = reduced;
  return sizes;
}

void expect_costs(ShardStrategy strategy, const TrainingSizes& sizes, const RankLayout& layout,
                  std::int64_t between_steps, std::int64_t in_step, std::int64_t sent) {
  const auto costs = predict_costs(strategy, sizes, layout);
  EXPECT_EQ(costs.bytes_between_steps, between_steps) << strategy_name(strategy);
  EXPECT_EQ(costs.bytes_in_step, in_step) << strategy_name(strategy);
  EXPECT_EQ(costs.bytes_sent, sent) << strategy_name(strategy);
}

// Units gather 80 + 2 * 720 - 90 bytes, of which 3/4 are sent.
//
// float32 that is sent as bfloat16: the buffers and what is sent have half of the bytes, the sums
// have all, and without divided gradients there are rounded copies of all of them beside them.
TEST(ReducedCosts, ShorterType) {
  const auto sizes =
      sizes_with({.sums = 800, .sent = 400, .largest_bucket = 60, .largest_of_unit = 45});
  const RankLayout four{.ranks = 4, .nodes = 4};
  expect_costs(none, sizes, four, 800 + 800 + 400 + 1600, 100, 600);
  expect_costs(optimizer, sizes, four, 800 + 800 + 400 + 400, 100, 600 + 600);
  expect_costs(gradients, sizes, four, 800 + 200 + 400 + 2 * 60, 120, 300 + 600);
  expect_costs(parameters, sizes, four, 200 + 200 + 400 + 2 * 45 + 180, 270 - 180 + 90, 300 + 1073);
  // Each of two nodes rounds the parts of its two ranks.
  expect_costs(hybrid, sizes, {.ranks = 4, .nodes = 2}, 400 + 400 + 800 + 2 * 60, 120 + 200, 200);
  expect_costs(hybrid, sizes, {.ranks = 4, .nodes = 1}, 200 + 200 + 400 + 2 * 60, 120, 0);
}

// bfloat16 that is sent as float32: twice the bytes, also of the sums.
TEST(ReducedCosts, LongerType) {
  const auto sizes =
      sizes_with({.sums = 1600, .sent = 1600, .largest_bucket = 240, .largest_of_unit = 180});
  const RankLayout four{.ranks = 4, .nodes = 4};
  expect_costs(none, sizes, four, 800 + 1600 + 1600, 100, 2400);
  expect_costs(optimizer, sizes, four, 800 + 1600 + 400, 100, 2400 + 600);
  expect_costs(gradients, sizes, four, 800 + 400 + 400 + 2 * 240, 120, 1200 + 600);
  expect_costs(parameters, sizes, four, 200 + 400 + 400 + 2 * 180 + 180, 270 - 180 + 90,
               1200 + 1073);
  expect_costs(hybrid, sizes, {.ranks = 4, .nodes = 2}, 400 + 800 + 800 + 2 * 240, 120, 800);
}

}  // namespace
}  // namespace ddp
