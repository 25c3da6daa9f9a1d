// SPDX-License-Identifier: Apache-2.0
// Micro-batches whose whole gradients are kept and reduced once: ShardOptions::reduce_once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "tests/unit/parallel/sharded/strategies.h"
#include "tests/unit/parallel/sharded/tower.h"

namespace ddp::test {
namespace {

constexpr int kMicroBatches = 3;

// Whose gradients are divided.
std::vector<Strategy> reducing_once() {
  auto strategies = all_strategies({"blocks.*", "spare"});
  std::erase_if(strategies, [](const Strategy& strategy) {
    return strategy.options.shard == Shard::optimizer || strategy.options.hybrid_ranks > 0;
  });
  for (auto& strategy : strategies) strategy.options.reduce_once = true;
  return strategies;
}

// The bits of these steps are compared in sharded_semantics_test.cpp.
std::size_t reductions_of_a_step(const Strategy& strategy) {
  std::size_t reductions = 0;
  const auto body = [&](Tower& net, Training& training, comm::Group& group) {
    auto step = training.replica->begin_step(kMicroBatches);
    for (int micro = 0; micro < kMicroBatches; ++micro) {
      step.backward(loss_of_tower(net->forward(numbers_of(micro)), group.rank()));
    }
    step.apply(*training.optimizer);
    if (group.rank() != 0) return;
    for (const auto& span : training.replica->communication()) {
      if (span.label.starts_with("gradients of")) ++reductions;
    }
  };
  values_after(
      2, strategy, [] { return Tower(); }, body);
  return reductions;
}

TEST(ReduceOnceTraffic, IsThatOfOneMicroBatch) {
  if (on_device()) GTEST_SKIP() << "collectives of a device are not over yet";
  for (auto strategy : reducing_once()) {
    const auto once = reductions_of_a_step(strategy);
    EXPECT_GT(once, 0U);
    strategy.options.reduce_once = false;
    EXPECT_EQ(once * kMicroBatches, reductions_of_a_step(strategy)) << strategy.name;
  }
}

TEST(ReduceOnceGradients, AreWholeUntilTheLastMicroBatch) {
  test::run_ranks(2, [](comm::Group& group) {
    for (const auto& strategy : reducing_once()) {
      auto net = seeded([] { return Tower(); });
      ShardedDataParallel replica(*net, group, strategy.options);
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
  for (const auto& strategy : reducing_once()) {
    const auto error = error_of_three_ranks([&](comm::Group& group) {
      auto net = seeded([] { return Tower(); });
      ShardedDataParallel replica(*net, group, strategy.options);
      auto step = replica.begin_step(2);
      backward_of_tower(net, step, 0);
      step.backward(loss_of_tower(net->forward(numbers_of(1), /*uses_spare=*/false), 1));
    });
    EXPECT_THAT(error, testing::HasSubstr("spare.")) << strategy.name;
  }
}

}  // namespace
}  // namespace ddp::test
