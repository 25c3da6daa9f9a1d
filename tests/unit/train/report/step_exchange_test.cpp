// SPDX-License-Identifier: Apache-2.0
// Step comparison between ranks: separates waiting from time on the wire, with a different clock on
// each rank.
#include "ddp_runtime/train/report/step_exchange.h"

#include <gtest/gtest.h>

#include <chrono>

#include "ddp_runtime/comm/p2p/run_ranks.h"

namespace ddp::train {
namespace {

using profile::Clock;
using profile::Interval;
using profile::StepCollectives;

Interval span(double begin, double end) {
  const auto at = [](double seconds) {
    return Clock::time_point{} +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  };
  return {at(begin), at(end)};
}

// Backward ends at `late` on this rank and at `latest` on the last one. Two buckets are pending at
// that time and take 0.1 s each.
StepCollectives step_of(double clock, double late, double latest) {
  const double begin = clock + late;
  const double end = clock + latest + 0.1;
  return {{span(begin, end), span(end, end + 0.1)}, {span(begin, end + 0.1)}};
}

TEST(StepExchange, OnlyTheOtherRanksWaitForTheLateRank) {
  comm::run_ranks(3, [](comm::Group& group) {
    StepExchange exchange(group, 5);
    const double late = group.rank() == 1 ? 0.7 : 0.2;
    for (int step = 0; step < 40; ++step) {
      exchange.after_step(step_of(1000.0 * group.rank() + step, late, 0.7), 1);
    }
    exchange.finish();
    const auto& waits = exchange.waits();
    EXPECT_EQ(waits.steps, 35U);
    EXPECT_EQ(waits.late_steps, group.rank() == 1 ? 35U : 0U);
    EXPECT_NEAR(waits.exposed_waiting, group.rank() == 1 ? 0 : 35 * 0.5, 1e-3);
    EXPECT_NEAR(waits.wire, 35 * 0.2, 1e-3);
    EXPECT_NEAR(exchange.agreed_step_seconds().value_or(0), 1, 1e-6);
  });
}

TEST(StepExchange, EachRankIsLateInItsTurn) {
  comm::run_ranks(4, [](comm::Group& group) {
    StepExchange exchange(group, 0);
    for (int step = 0; step < 400; ++step) {
      const double late = step % 4 == group.rank() ? 0.6 : 0.1;
      exchange.after_step(step_of(step, late, 0.6), 0.01);
    }
    exchange.finish();
    EXPECT_EQ(exchange.waits().steps, 400U);
    EXPECT_EQ(exchange.waits().late_steps, 100U);
    EXPECT_NEAR(exchange.waits().exposed_waiting, 300 * 0.5, 1e-2);
  });
}

TEST(StepExchange, RanksThatDisagreeOnTheirCollectivesAreNotCompared) {
  comm::run_ranks(2, [](comm::Group& group) {
    StepExchange exchange(group, 0);
    for (int step = 0; step < 20; ++step) {
      auto collectives = step_of(step, 0.1, 0.1);
      if (group.rank() == 1 && step == 9) collectives.times.pop_back();
      exchange.after_step(collectives, 1);
    }
    exchange.finish();
    EXPECT_GT(exchange.waits().steps, 0U);
    EXPECT_LT(exchange.waits().steps, 20U);
  });
}

TEST(StepExchange, ExcessCollectivesAreLeftOut) {
  comm::run_ranks(2, [](comm::Group& group) {
    StepExchange exchange(group, 0);
    StepCollectives many;
    many.times.assign(StepExchange::kMaxCollectives, span(0, 1));
    StepCollectives too_many;
    too_many.times.assign(StepExchange::kMaxCollectives + 1, span(0, 1));
    for (int step = 0; step < 31; ++step) {
      exchange.after_step(step % 2 == 0 ? many : too_many, 1e-3);
    }
    exchange.finish();
    // One step of each window of 1, 2, 4, 8 and 16 steps.
    EXPECT_EQ(exchange.waits().steps, 5U);
  });
}

TEST(StepExchange, NoComparisonWithoutCollectives) {
  comm::run_ranks(2, [](comm::Group& group) {
    StepExchange exchange(group, 5);
    exchange.finish();
    EXPECT_EQ(exchange.waits().steps, 0U);
    EXPECT_FALSE(exchange.agreed_step_seconds());
    for (int step = 0; step < 3; ++step) exchange.after_step({}, 1);
    exchange.finish();
    EXPECT_EQ(exchange.waits().steps, 0U);
  });
}

}  // namespace
}  // namespace ddp::train
