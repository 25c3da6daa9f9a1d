// SPDX-License-Identifier: Apache-2.0
// Training with shards and what is kept beside the weights: float32 masters of those in bfloat16,
// and averages. Of both, each rank has its rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/train/small_runs.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

class ShardedTraining : public SmallRuns {};

class ShardedBf16Weights : public ShardedTraining {
 protected:
  ShardedBf16Weights() { options_.precision = options_.param_type = amp::Precision::bf16; }
};

class ShardedAverages : public ShardedTraining {
 protected:
  ShardedAverages() {
    options_.ema_decay = 0.9;
    options_.optimizer.learning_rate = 0.05;
  }
};

TEST_F(ShardedBf16Weights, EndWithTheBitsOfPlainOnes) {
  for (const char* optimizer : {"sgd", "adamw"}) {
    for (const int ranks : {1, 2, 3}) {
      options_.optimizer.name = optimizer;
      const auto name = [&](Shard shard) {
        return optimizer + shard_mode_name(shard) + std::to_string(ranks);
      };
      const auto expected = train(Shard::none, 6, name(Shard::none), ranks);
      const auto arrays = saved(name(Shard::none));
      EXPECT_GT(arrays.size(), 4U);
      for (const auto shard : kStrategies) {
        EXPECT_EQ(train(shard, 6, name(shard), ranks), expected) << name(shard);
        // With the masters and the state of the optimizer, in float32.
        EXPECT_TRUE(saved(name(shard)) == arrays) << name(shard);
      }
    }
  }
}

TEST_F(ShardedBf16Weights, AreResumedByAnyStrategy) {
  const auto expected = train(Shard::none, 8, "whole");
  const auto arrays = saved("whole");
  for (const auto& [first, second] : {std::pair{Shard::none, Shard::parameters},
                                      {Shard::parameters, Shard::gradients},
                                      {Shard::gradients, Shard::optimizer},
                                      {Shard::optimizer, Shard::hybrid},
                                      {Shard::hybrid, Shard::none}}) {
    const auto name = shard_mode_name(first) + " " + shard_mode_name(second);
    train(first, 4, name);
    EXPECT_EQ(train(second, 8, name), expected) << name;
    EXPECT_TRUE(saved(name) == arrays) << name;
  }
}

TEST_F(ShardedBf16Weights, AreResumedByAnotherNumberOfRanks) {
  train(Shard::parameters, 4, "two");
  options_.batch = 4;
  for (const auto shard : kStrategies) {
    const auto name = shard_mode_name(shard);
    for (const char* const copy : {"plain", "sharded"}) {
      fs::copy(temporary_.path() / "two", temporary_.path() / (name + copy),
               fs::copy_options::recursive);
    }
    EXPECT_EQ(train(shard, 4, name + "sharded", 4), train(Shard::none, 4, name + "plain", 4));
    EXPECT_EQ(train(shard, 6, name + "sharded", 4), train(Shard::none, 6, name + "plain", 4))
        << name;
  }
}

TEST_F(ShardedBf16Weights, RunContinuesWithTheOtherType) {
  for (const bool half_first : {true, false}) {
    const auto continued = [&](Shard shard) {
      const auto name = shard_mode_name(shard) + (half_first ? " half" : " full");
      options_.param_type = half_first ? amp::Precision::bf16 : amp::Precision::fp32;
      train(shard, 4, name);
      options_.param_type = half_first ? amp::Precision::fp32 : amp::Precision::bf16;
      return train(shard, 8, name);
    };
    const auto expected = continued(Shard::none);
    for (const auto shard : kStrategies) {
      EXPECT_EQ(continued(shard), expected) << half_first << " " << shard_mode_name(shard);
    }
  }
}

// With loss scaling, whose gradients are bfloat16 then.
TEST_F(ShardedBf16Weights, SkipTheStepsThatPlainOnesSkip) {
  options_.on_nan = OnNan::skip;
  options_.loss_scale = 1024;
  const auto without = train(Shard::none, 8);
  overflowing_call_ = 3;
  const auto expected = train(Shard::none, 8, "whole");
  EXPECT_NE(expected, without);
  for (const auto shard : kStrategies) {
    EXPECT_EQ(train(shard, 8, shard_mode_name(shard)), expected) << shard_mode_name(shard);
    // ATen's fused operators of CPUs, which the simulated GPU uses, differ in the last bits.
    if (test::on_device()) continue;
    EXPECT_TRUE(saved(shard_mode_name(shard)) == saved("whole")) << shard_mode_name(shard);
  }
}

TEST_F(ShardedAverages, AreEvaluatedAndSaved) {
  for (const auto type : {amp::Precision::fp32, amp::Precision::bf16}) {
    options_.precision = options_.param_type = type;
    const auto name = [&](Shard shard) {
      return shard_mode_name(shard) + (type == amp::Precision::fp32 ? " full" : " half");
    };
    const auto expected = train(Shard::none, 12, name(Shard::none));
    const auto loss = loss_;
    const auto arrays = saved(name(Shard::none));
    EXPECT_TRUE(arrays.contains("user/ema/output.weight"));
    for (const auto shard : kStrategies) {
      EXPECT_EQ(train(shard, 12, name(shard)), expected) << name(shard);
      EXPECT_EQ(loss_, loss) << name(shard);
      EXPECT_TRUE(saved(name(shard)) == arrays) << name(shard);
    }
    options_.ema_decay = 0;
    train(Shard::parameters, 12);
    EXPECT_NE(loss_, loss);
    options_.ema_decay = 0.9;
  }
}

TEST_F(ShardedAverages, AreResumedByAnyStrategy) {
  const auto expected = train(Shard::none, 8, "whole");
  const auto loss = loss_;
  for (const auto& [first, second] : {std::pair{Shard::none, Shard::parameters},
                                      {Shard::parameters, Shard::hybrid},
                                      {Shard::hybrid, Shard::gradients},
                                      {Shard::parameters, Shard::none}}) {
    const auto name = shard_mode_name(first) + " " + shard_mode_name(second);
    train(first, 4, name);
    EXPECT_EQ(train(second, 8, name), expected) << name;
    EXPECT_EQ(loss_, loss) << name;
    EXPECT_TRUE(saved(name) == saved("whole")) << name;
  }
}

// In the middle of a run, after which it continues with its own weights.
TEST_F(ShardedAverages, ReplaceTheWeightsForAnEvaluationOnly) {
  const auto trained = [&](Shard shard, int ranks) {
    options_.ema_decay = 0.9;
    const auto averaged = train(shard, 12, "", ranks);  // three epochs with two ranks
    options_.ema_decay = 0;
    EXPECT_EQ(averaged, train(shard, 12, "", ranks)) << shard_mode_name(shard) << " " << ranks;
  };
  for (const int ranks : {1, 3}) {
    for (const auto shard : kStrategies) trained(shard, ranks);
  }
}

}  // namespace
}  // namespace ddp::train
