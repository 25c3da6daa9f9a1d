// SPDX-License-Identifier: Apache-2.0
// Steps with shards that are skipped: the ranks agree about gradients of which each has a part.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <mutex>

#include "ddp_runtime/train/options/shard_mode.h"
#include "tests/unit/train/tower_steps.h"

namespace ddp::train {
namespace {

using testing::ElementsAre;

constexpr auto kStrategies = {Shard::optimizer, Shard::gradients, Shard::parameters, Shard::hybrid};

struct Overflow {
  std::int64_t row = 0;  // of the tokens' weight, so that one rank's part has it
  std::vector<std::int64_t> steps = {};
};

// In the gradients of the last rank.
void spoil(TowerSteps& steps, const comm::Group& group, const Overflow& overflow) {
  if (group.rank() != group.size() - 1) return;
  steps.net->tokens->weight.register_hook([&steps, overflow](const torch::Tensor& gradient) {
    if (std::ranges::find(overflow.steps, steps.made) == overflow.steps.end()) return gradient;
    auto spoiled = gradient.clone();
    spoiled[overflow.row][1].fill_(std::numeric_limits<float>::infinity());
    return spoiled;
  });
}

class ShardedSteps : public testing::Test {
 protected:
  ShardedSteps() { torch::set_num_threads(1); }

  static TowerRun run(int ranks, const TrainOptions& options, const Overflow& overflow,
                      const std::function<int(int rank)>& node_of = {}) {
    std::vector<TowerRun> runs(static_cast<std::size_t>(ranks));
    const auto body = [&](comm::Group& group) {
      TowerSteps steps(group, options);
      spoil(steps, group, overflow);
      steps.run(6);
      steps.settle();
      if (auto* const scaler = steps.step->scaler()) {
        steps.skipped.push_back(std::to_string(scaler->scale()));
      }
      runs[static_cast<std::size_t>(group.rank())] = {steps.values(), steps.skipped};
    };
    test::run_ranks(ranks, body, {}, node_of);
    for (const auto& of_rank : runs) expect_same_run(of_rank, runs.front(), "ranks");
    return runs.front();
  }
};

// Also the state of the optimizer, which the steps after a skipped one use.
TEST_F(ShardedSteps, SkipTheStepsThatPlainOnesSkip) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    for (const double scale : {0.0, 1024.0}) {
      for (const std::int64_t row : {0, 10}) {
        TrainOptions options;
        options.optimizer.name = optimizer;
        options.loss_scale = scale;
        if (scale == 0) options.on_nan = OnNan::skip;
        const Overflow overflow{row, {1, 4}};
        const auto expected = run(2, options, overflow);
        ASSERT_EQ(expected.skipped.size(), scale == 0 ? 2U : 3U);
        for (const auto shard : kStrategies) {
          expect_same_run(run(2, with_shards(options, shard), overflow), expected,
                          std::string(optimizer) + " " + shard_mode_name(shard) + " " +
                              std::to_string(scale) + " " + std::to_string(row));
        }
      }
    }
  }
}

TEST_F(ShardedSteps, NameTheStepThatIsSkipped) {
  TrainOptions options;
  options.loss_scale = 1024;
  EXPECT_THAT(run(3, with_shards(options, Shard::parameters), {7, {2}}).skipped,
              ElementsAre("step 2: the gradients overflowed with a loss scale of 1024, which is "
                          "now 512",
                          "512.000000"));
  options.loss_scale = 0;
  options.on_nan = OnNan::skip;
  EXPECT_THAT(run(3, with_shards(options, Shard::gradients), {7, {2}}).skipped,
              ElementsAre("step 2: a gradient is not finite"));
}

// Nodes have the same parts, of which one rank of each has what overflows.
TEST_F(ShardedSteps, AreSkippedByAllNodes) {
  TrainOptions options;
  options.loss_scale = 1024;
  for (const std::int64_t row : {0, 10}) {
    const auto skipped = run(4, with_shards(options, Shard::hybrid), {row, {3}}, [](int rank) {
                           return rank / 2;
                         }).skipped;
    EXPECT_EQ(skipped.size(), 2U) << row;
  }
}

// A power of two changes no bit, with several micro-batches and clipping, too.
TEST_F(ShardedSteps, LossScaleChangesNoBit) {
  TrainOptions options;
  options.optimizer.name = "adamw";
  options.clip_norm = 0.1;
  options.micro_batches = 2;
  for (const auto shard : kStrategies) {
    // Steps that a device may skip take ATen's operators, so both runs must be of this kind.
    options.on_nan = OnNan::skip;
    options.loss_scale = 0;
    const auto expected = run(2, with_shards(options, shard), {});
    options.loss_scale = 4096;
    auto scaled = run(2, with_shards(options, shard), {});
    scaled.skipped.clear();
    expect_same_run(scaled, expected, shard_mode_name(shard));
  }
}

}  // namespace
}  // namespace ddp::train
