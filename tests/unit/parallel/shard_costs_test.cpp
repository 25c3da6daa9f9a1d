// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/shard_costs.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace ddp {
namespace {

using enum ShardStrategy;

// 800 bytes of parameters in a root of 80 and eight units of 90, with two values of state each.
TrainingSizes sizes() {
  return {.trained = 800,
          .frozen = 0,
          .state = 1600,
          .fresh_gradients = 100,
          .largest_bucket = 120,
          .units = {.count = 8,
                    .root = 80,
                    .largest = 90,
                    .last = 90,
                    .partly_frozen = 0,
                    .largest_of_gradients = 90}};
}

struct Memory {
  std::int64_t between_steps;
  std::int64_t in_step;
};

void expect_memory(const TrainingSizes& sizes, const RankLayout& layout,
                   const std::map<ShardStrategy, Memory>& expected) {
  for (const auto& [strategy, memory] : expected) {
    const auto costs = predict_costs(strategy, sizes, layout);
    EXPECT_EQ(costs.bytes_between_steps, memory.between_steps) << strategy_name(strategy);
    EXPECT_EQ(costs.bytes_in_step, memory.in_step) << strategy_name(strategy);
  }
}

void expect_sent(const TrainingSizes& sizes, const RankLayout& layout,
                 const std::map<ShardStrategy, std::int64_t>& expected) {
  for (const auto& [strategy, bytes] : expected) {
    EXPECT_EQ(predict_costs(strategy, sizes, layout).bytes_sent, bytes) << strategy_name(strategy);
  }
}

TEST(ShardCosts, MemoryOfEachStrategy) {
  // P = 800, G = 800, S = 1600. Divided parameters: two buffers of 90 for gradients, and two blocks
  // of 90 that are kept. In a step the root, in a block of a unit, and two units are whole, 270,
  // and a unit's fresh gradients, 90.
  expect_memory(sizes(), {.ranks = 4, .nodes = 2},
                {{none, {800 + 800 + 1600, 100}},
                 {optimizer, {800 + 800 + 400, 100}},
                 {gradients, {800 + 200 + 400 + 2 * 120, 120}},
                 {parameters, {200 + 200 + 400 + 2 * 90 + 2 * 90, 270 - 180 + 90}},
                 {parameters_kept, {200 + 200 + 400 + 2 * 90 + 2 * 90, 90 + 720 - 180 + 90}},
                 // In common: no memory for whole units, and gradients in buckets.
                 {hybrid, {400 + 400 + 800 + 2 * 120, 120}}});
  // On GPUs, with a buffer for a rank's part beside each of the two for gradients.
  expect_memory(sizes(), {.ranks = 4, .nodes = 2, .on_gpus = true},
                {{hybrid, {400 + 400 + 800 + 2 * 90 + 90 + 2 * 90, 270 - 180 + 90}},
                 {gradients, {800 + 200 + 400 + 2 * 120 + 60, 120}}});
}

TEST(ShardCosts, SingleRankKeepsAllAndGathersNothing) {
  expect_memory(sizes(), {.ranks = 1},
                {{none, {3200, 0}},
                 {optimizer, {3200, 0}},
                 {gradients, {3200 + 240, 120}},
                 {parameters, {3200 + 180, 90}},
                 {parameters_kept, {3200 + 180, 90}}});
  // One rank on each machine.
  expect_memory(sizes(), {.ranks = 4, .nodes = 4}, {{hybrid, {3200 + 240, 120}}});
}

TEST(ShardCosts, WholeMemoryFollowsTheUnits) {
  const RankLayout layout{.ranks = 4};
  constexpr std::int64_t kParts = 200 + 200 + 400 + 2 * 90;
  auto changed = sizes();
  // The root's block is the largest.
  changed.units.root = 300;
  expect_memory(changed, layout, {{parameters, {kParts + 390, 300 + 180 - 390 + 90}}});
  // No parameter is outside of units.
  changed.units.root = 0;
  expect_memory(changed, layout, {{parameters, {kParts + 180, 0 + 90}}});
  // Two units of different sizes.
  changed.units = {.count = 2, .largest = 700, .last = 100, .largest_of_gradients = 90};
  expect_memory(changed, layout, {{parameters, {kParts + 800, 0 + 90}}});
  // One unit.
  changed.units = {.count = 1, .root = 80, .largest = 720, .last = 720, .largest_of_gradients = 90};
  expect_memory(changed, layout, {{parameters, {kParts + 800, 0 + 90}}});
  // None: everything is in the root.
  changed.units = {.root = 800, .largest_of_gradients = 90};
  expect_memory(changed, layout, {{parameters, {kParts + 800, 0 + 90}}});
}

TEST(ShardCosts, FrozenParametersHaveNoGradientsAndKeepUnitsWhole) {
  auto frozen = sizes();
  frozen.trained = 500;
  frozen.frozen = 300;
  frozen.state = 1000;
  frozen.units.partly_frozen = 360;
  const RankLayout layout{.ranks = 4, .nodes = 4};
  expect_memory(frozen, layout,
                {{none, {800 + 500 + 1000, 100}},
                 {gradients, {800 + 125 + 250 + 240, 120}},
                 {parameters, {200 + 125 + 250 + 180 + 180, 270 + 360 - 180 + 90}}});
  // Never more than all of them.
  frozen.units.partly_frozen = 720;
  expect_memory(frozen, layout, {{parameters, {200 + 125 + 250 + 180 + 180, 90 + 720 - 180 + 90}}});
  expect_sent(frozen, layout,
              {{none, 2 * 500 * 3 / 4},
               {optimizer, 2 * 500 * 3 / 4 + 500 * 3 / 4},
               {gradients, 500 * 3 / 4 + 500 * 3 / 4}});
}

TEST(ShardCosts, NothingIsSentOnOneMachine) {
  for (const auto strategy : {none, optimizer, gradients, parameters, parameters_kept, hybrid}) {
    EXPECT_EQ(predict_costs(strategy, sizes(), {.ranks = 4}).bytes_sent, 0);
  }
}

TEST(ShardCosts, TrafficOfOneRankPerMachine) {
  // Units are gathered twice but for the last one: 80 + 2 x 720 - 90 = 1430.
  expect_sent(sizes(), {.ranks = 4, .nodes = 4},
              {{none, 1200},
               {optimizer, 1200 + 600},
               {gradients, 600 + 600},
               {parameters, 1673},  // 600 + 1072.5
               {parameters_kept, 600 + 600},
               {hybrid, 1200}});
}

TEST(ShardCosts, TrafficOfSeveralRanksPerMachine) {
  // Sums cross the wire twice per machine, 2 x 800 / 2 / 2 ranks, and gathers once.
  expect_sent(sizes(), {.ranks = 4, .nodes = 2},
              {{none, 400},
               {optimizer, 400 + 300},
               {gradients, 400 + 300},
               {parameters, 936},  // 400 + 1430 x 3 / 8
               {parameters_kept, 400 + 300},
               {hybrid, 400}});
}

TEST(ShardCosts, DividedGradientsAreReducedInEveryMicroBatch) {
  expect_sent(sizes(), {.ranks = 4, .nodes = 2, .micro_batches = 3},
              {{none, 400},
               {optimizer, 400 + 300},
               {gradients, 1200 + 300},
               {parameters, 2749},  // 1200 + (80 + 3 x 1350) x 3 / 8
               {parameters_kept, 1200 + 840},
               {hybrid, 400}});
}

TEST(ShardCosts, RanksThatHaveDifferentParts) {
  const RankLayout layout{.ranks = 6, .nodes = 3};
  EXPECT_EQ(predict_costs(none, sizes(), layout).divided_by, 1);
  EXPECT_EQ(predict_costs(optimizer, sizes(), layout).divided_by, 6);
  EXPECT_EQ(predict_costs(parameters, sizes(), layout).divided_by, 6);
  EXPECT_EQ(predict_costs(hybrid, sizes(), layout).divided_by, 2);
}

}  // namespace
}  // namespace ddp
