// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/plan/shard_costs.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/unit/parallel/sharded/plan/sizes_of_units.h"

namespace ddp {
namespace {

using enum ShardStrategy;

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
  expect_memory(test::sizes_of_units(), {.ranks = 4, .nodes = 2},
                {{none, {800 + 800 + 1600, 100}},
                 {optimizer, {800 + 800 + 400, 100}},
                 {gradients, {800 + 200 + 400 + 2 * 120, 120}},
                 {parameters, {200 + 200 + 400 + 2 * 90 + 2 * 90, 270 - 180 + 90}},
                 {parameters_kept, {200 + 200 + 400 + 2 * 90 + 2 * 90, 90 + 720 - 180 + 90}},
                 // In common: no memory for whole units, and gradients in buckets.
                 {hybrid, {400 + 400 + 800 + 2 * 120, 120}}});
  // On GPUs, with a buffer for a rank's part beside each of the two for gradients.
  expect_memory(test::sizes_of_units(), {.ranks = 4, .nodes = 2, .on_gpus = true},
                {{hybrid, {400 + 400 + 800 + 2 * 90 + 90 + 2 * 90, 270 - 180 + 90}},
                 {gradients, {800 + 200 + 400 + 2 * 120 + 60, 120}}});
}

TEST(ShardCosts, StateInFilesIsNotInMemory) {
  auto offloaded = test::sizes_of_units();
  offloaded.offloaded = 1600;
  offloaded.offload_buffers = 500;
  offloaded.state = 0;
  // What a rank of four has in its file, 400, is less than its buffers could hold.
  expect_memory(offloaded, {.ranks = 4, .nodes = 2},
                {{none, {800 + 800 + 500, 100}},
                 {optimizer, {800 + 800 + 400, 100}},
                 {gradients, {800 + 200 + 400 + 2 * 120, 120}}});
  EXPECT_EQ(predict_costs(none, offloaded, {.ranks = 4, .nodes = 2}).bytes_offloaded, 1600);
  EXPECT_EQ(predict_costs(parameters, offloaded, {.ranks = 4, .nodes = 2}).bytes_offloaded, 400);
  EXPECT_EQ(predict_costs(hybrid, offloaded, {.ranks = 4, .nodes = 2}).bytes_offloaded, 800);
}

TEST(ShardCosts, SingleRankKeepsAllAndGathersNothing) {
  expect_memory(test::sizes_of_units(), {.ranks = 1},
                {{none, {3200, 0}},
                 {optimizer, {3200, 0}},
                 {gradients, {3200 + 240, 120}},
                 {parameters, {3200 + 180, 90}},
                 {parameters_kept, {3200 + 180, 90}}});
  // One rank on each machine.
  expect_memory(test::sizes_of_units(), {.ranks = 4, .nodes = 4}, {{hybrid, {3200 + 240, 120}}});
}

TEST(ShardCosts, WholeMemoryFollowsTheUnits) {
  const RankLayout layout{.ranks = 4};
  constexpr std::int64_t kParts = 200 + 200 + 400 + 2 * 90;
  auto changed = test::sizes_of_units();
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
  auto frozen = test::sizes_of_units();
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
    EXPECT_EQ(predict_costs(strategy, test::sizes_of_units(), {.ranks = 4}).bytes_sent, 0);
  }
}

TEST(ShardCosts, TrafficOfOneRankPerMachine) {
  // Units are gathered twice but for the last one: 80 + 2 x 720 - 90 = 1430.
  expect_sent(test::sizes_of_units(), {.ranks = 4, .nodes = 4},
              {{none, 1200},
               {optimizer, 1200 + 600},
               {gradients, 600 + 600},
               {parameters, 1673},  // 600 + 1072.5
               {parameters_kept, 600 + 600},
               {hybrid, 1200}});
}

TEST(ShardCosts, TrafficOfSeveralRanksPerMachine) {
  // Sums cross the wire twice per machine, 2 x 800 / 2 / 2 ranks, and gathers once.
  expect_sent(test::sizes_of_units(), {.ranks = 4, .nodes = 2},
              {{none, 400},
               {optimizer, 400 + 300},
               {gradients, 400 + 300},
               {parameters, 936},  // 400 + 1430 x 3 / 8
               {parameters_kept, 400 + 300},
               {hybrid, 400}});
}

TEST(ShardCosts, DividedGradientsAreReducedInEveryMicroBatch) {
  expect_sent(test::sizes_of_units(), {.ranks = 4, .nodes = 2, .micro_batches = 3},
              {{none, 400},
               {optimizer, 400 + 300},
               {gradients, 1200 + 300},
               {parameters, 2749},  // 1200 + (80 + 3 x 1350) x 3 / 8
               {parameters_kept, 1200 + 840},
               {hybrid, 400}});
}

TEST(ShardCosts, RanksThatHaveDifferentParts) {
  const RankLayout layout{.ranks = 6, .nodes = 3};
  EXPECT_EQ(predict_costs(none, test::sizes_of_units(), layout).divided_by, 1);
  EXPECT_EQ(predict_costs(optimizer, test::sizes_of_units(), layout).divided_by, 6);
  EXPECT_EQ(predict_costs(parameters, test::sizes_of_units(), layout).divided_by, 6);
  EXPECT_EQ(predict_costs(hybrid, test::sizes_of_units(), layout).divided_by, 2);
}

}  // namespace
}  // namespace ddp
