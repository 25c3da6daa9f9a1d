// SPDX-License-Identifier: Apache-2.0
// The time that schedules lose: known figures and formulas.
#include "ddp_runtime/pipeline/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/unit/error_of.h"
#include "tests/unit/pipeline/schedule_cases.h"

namespace ddp::pipeline::test {
namespace {

using testing::Each;
using testing::ElementsAreArray;
using testing::HasSubstr;
using enum Schedule;

struct Figures {
  Schedule schedule;
  Layout layout;
  double span;
  double busy;
  double bubble;  // rounded to three digits
  std::vector<int> kept;
};

TEST(Simulation, GivesTheKnownFigures) {
  const std::vector<Figures> all = {
      {gpipe, {4, 8}, 33, 24, 0.273, {8, 8, 8, 8}},
      {one_f_one_b, {4, 8}, 33, 24, 0.273, {4, 3, 2, 1}},
      {interleaved, {4, 8, 2}, 57, 48, 0.158, {11, 9, 7, 5}},
      {zb_h1, {4, 8}, 27, 24, 0.111, {4, 4, 4, 4}},
      {gpipe, {2, 4}, 15, 12, 0.200, {4, 4}},
      {one_f_one_b, {2, 4}, 15, 12, 0.200, {2, 1}},
      {interleaved, {2, 4, 2}, 27, 24, 0.111, {5, 3}},
      {zb_h1, {2, 4}, 13, 12, 0.077, {2, 2}},
      {one_f_one_b, {4, 2}, 15, 6, 0.600, {2, 2, 2, 1}},
  };
  for (const auto& figures : all) {
    const auto result = simulate(figures.schedule, figures.layout);
    EXPECT_EQ(result.span, figures.span) << to_string(figures.schedule);
    EXPECT_THAT(result.busy, Each(figures.busy)) << to_string(figures.schedule);
    EXPECT_EQ(std::round(result.bubble * 1000) / 1000, figures.bubble);
    EXPECT_THAT(result.kept, ElementsAreArray(figures.kept)) << to_string(figures.schedule);
  }
}

TEST(Simulation, OfAllPipelinesEnds) {
  for (const auto& one : all_cases()) {
    const auto result = simulate(one.schedule, one.layout);
    const double p = one.layout.ranks;
    const double work = one.layout.micro_batches * one.layout.stages_per_rank;
    EXPECT_THAT(result.busy, Each(3 * work)) << one.text();
    for (int rank = 0; rank < one.layout.ranks; ++rank) {
      EXPECT_EQ(result.kept[static_cast<std::size_t>(rank)],
                max_kept(one.schedule, one.layout, rank));
    }
    // Fewer micro-batches than ranks leave ZB-H1 nothing to fill idle time with.
    if (one.schedule == zb_h1 && work < p) continue;
    const double idle =
        one.schedule == zb_h1 ? (p - 1) / (3 * work + p - 1) : (p - 1) / (work + p - 1);
    EXPECT_NEAR(result.bubble, idle, 1e-12) << one.text();
  }
}

// The first micro-batch passes two boundaries there and two back, and no other message is waited
// for if stages take longer than it.
TEST(Simulation, AddsTheMessagesThatRanksWaitFor) {
  const std::vector<StageTimes> times(3);
  EXPECT_NEAR(simulate(gpipe, {3, 4}, times, 0.25).span, 18 + 4 * 0.25, 1e-9);
  EXPECT_NEAR(simulate(gpipe, {1, 4}, {times.data(), 1}, 0.25).span, 12, 1e-9);
  // Forward and backward that take turns wait for messages both ways.
  EXPECT_GT(simulate(one_f_one_b, {3, 4}, times, 0.25).span, 18 + 4 * 0.25);
}

TEST(Simulation, TakesTheTimeOfEachOperation) {
  const auto seconds = [](const Operation& operation) {
    return operation.kind == OperationKind::backward ? 2.0 + operation.micro_batch : 1.0;
  };
  // F0 to F3 of stage 0, F3 of stage 1, then backward: 2, 3, 4 and 5 on stage 1, the last one again
  // on stage 0.
  const auto result = simulate(gpipe, {2, 4}, seconds);
  EXPECT_EQ(result.span, 5 + 14 + 5);
  EXPECT_THAT(result.busy, Each(18));
}

TEST(Simulation, ShowsTheCostOfAStageThatIsHeavier) {
  std::vector<StageTimes> times(4);
  times[2] = {1.2, 1.2, 1.2};
  const auto result = simulate(one_f_one_b, {4, 8}, times);
  EXPECT_NEAR(result.busy[2], 1.2 * 24, 1e-9);
  EXPECT_NEAR(result.span, 33 + 0.2 * 3 * 7, 1e-9);
  EXPECT_THAT(error_of([&] {
                simulate(one_f_one_b, {3, 8}, times);
              }),
              HasSubstr("needs the times of 3 stages, but has those of 4"));
}

}  // namespace
}  // namespace ddp::pipeline::test
