// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks keep whole gradients until the last micro-batch of a step.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/train/small_runs.h"

namespace ddp::train {
namespace {

constexpr auto kReducing = {Shard::gradients, Shard::parameters, Shard::hybrid};

class ReduceOnceTraining : public SmallRuns {
 protected:
  ReduceOnceTraining() {
    options_.batch = 2;
    options_.micro_batches = 3;
    options_.reduce_once = true;
  }
  void expect_bits_of_data_parallelism(const std::string& what) {
    for (const int ranks : {1, 2, 3}) {
      const auto whole = what + std::to_string(ranks);
      const auto expected = train(Shard::none, 6, whole, ranks);
      ASSERT_GT(saved(whole).size(), 4U);
      for (const auto shard : kReducing) {
        const auto name = whole + shard_mode_name(shard);
        EXPECT_EQ(train(shard, 3, name, ranks), train(Shard::none, 3, "", ranks)) << name;
        EXPECT_EQ(train(shard, 6, name, ranks), expected) << name;
        EXPECT_TRUE(saved(name) == saved(whole)) << name;
      }
    }
  }
};

TEST_F(ReduceOnceTraining, HasTheBitsOfDataParallelism) {
  expect_bits_of_data_parallelism("float32");
}

TEST_F(ReduceOnceTraining, HasTheBitsOfDataParallelismWithBf16Weights) {
  options_.precision = options_.param_type = amp::Precision::bf16;
  expect_bits_of_data_parallelism("bf16");
}

TEST_F(ReduceOnceTraining, HasTheBitsOfDataParallelismInAnotherType) {
  options_.parallel.reduce_type = torch::kBFloat16;
  expect_bits_of_data_parallelism("float32 in bf16");
  options_.precision = options_.param_type = amp::Precision::bf16;
  options_.parallel.reduce_type = torch::kFloat32;
  expect_bits_of_data_parallelism("bf16 in float32");
}

TEST_F(ReduceOnceTraining, SkipsTheStepsThatDataParallelismSkips) {
  options_.on_nan = OnNan::skip;
  options_.loss_scale = 1024;
  const auto without = train(Shard::none, 6);
  overflowing_call_ = 5;
  const auto expected = train(Shard::none, 6);
  EXPECT_NE(expected, without);
  for (const auto shard : kReducing) {
    EXPECT_EQ(train(shard, 6), expected) << shard_mode_name(shard);
  }
}

TEST_F(ReduceOnceTraining, OtherwiseRoundsInAnotherOrder) {
  const auto once = train(Shard::gradients, 6);
  options_.reduce_once = false;
  EXPECT_NE(train(Shard::gradients, 6), once);
}

}  // namespace
}  // namespace ddp::train
