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

#include "ddp_runtime/data/tensor_dataset.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/train/shard_mode.h"
#include "ddp_runtime/train/trainer.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "tests/unit/parallel/branches.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;

constexpr auto kDivisions = {Shard::optimizer, Shard::gradients, Shard::parameters, Shard::hybrid};

// Names of arrays -> their bytes, without generators and the order of buckets.
using Arrays = std::map<std::string, std::vector<std::byte>>;

Arrays arrays_in(const fs::path& directory) {
  Arrays arrays;
  const auto newest = ckpt::CheckpointDirectory(directory).newest_verified();
  if (!newest) return arrays;
  for (const auto& array : newest->checkpoint.arrays()) {
    if (array.name.starts_with("rng/") || array.name.starts_with("ddp/")) continue;
    arrays[array.name] = newest->checkpoint.read(array.name).bytes;
  }
  return arrays;
}

class ShardedTraining : public testing::Test {
 protected:
  ShardedTraining() {
    torch::set_num_threads(1);
    options_.batch = 8;
    options_.optimizer = {"adamw", 0.003, 0.9, 0.01};
    const auto inputs =
        torch::randn({64, 1, 4, 4}, torch::make_generator<torch::CPUGeneratorImpl>(7));
    const auto targets = inputs.mean({1, 2, 3}).gt(0).to(torch::kInt64);
    const auto data = std::make_shared<data::TensorDataset>(inputs, targets, 2);
    data_ = {"images", data, data};
  }

  // The checksum of the parameters.
  std::uint32_t train(Shard shard, std::int64_t steps, const std::string& directory = "",
                      int ranks = 2) {
    std::uint32_t checksum = 0;
    test::run_ranks(ranks, [&](comm::Group& group) {
      const auto model = test::seeded([] {
        return models::make_model({.name = "mlp", .input = {1, 4, 4}, .classes = 2, .width = 24});
      });
      auto options = options_;
      options.shard = shard;
      options.units = model->units();
      options.steps = steps;
      if (!directory.empty()) options.checkpoint.directory = temporary_.path() / directory;
      TrainTask task{
          "test", "test", "mlp", *model, [&](const torch::Tensor& x) { return model->forward(x); },
          data_};
      if (overflowing_call_ > 0) task.loss = loss_of(group.rank());
      Trainer trainer(group, task, options);
      const auto result = trainer.fit();
      if (group.rank() != 0) return;
      checksum = result.parameters_crc32c;
      evaluation_loss_ = result.evaluation.loss;
    });
    return checksum;
  }
  // Of one rank, whose gradients overflow once.
  LossFunction loss_of(int rank) const {
    return [bad = overflowing_call_, rank, call = 0](const torch::Tensor& scores,
                                                     const torch::Tensor& targets) mutable {
      if (scores.requires_grad() && ++call == bad && rank == 1) {
        scores.register_hook([](const torch::Tensor& g) { return g * 1e38 * 1e10; });
      }
      return mean_cross_entropy(scores, targets);
    };
  }
  Arrays saved(const std::string& directory) const {
    return arrays_in(temporary_.path() / directory);
  }

  test::TemporaryDirectory temporary_;
  TrainOptions options_;
  data::DataPair data_;
  int overflowing_call_ = 0;
  double evaluation_loss_ = 0;  // of the last run
};

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
      for (const auto shard : kDivisions) {
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
  for (const auto shard : kDivisions) {
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
    for (const auto shard : kDivisions) {
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
  for (const auto shard : kDivisions) {
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
    const auto loss = evaluation_loss_;
    const auto arrays = saved(name(Shard::none));
    EXPECT_TRUE(arrays.contains("user/ema/output.weight"));
    for (const auto shard : kDivisions) {
      EXPECT_EQ(train(shard, 12, name(shard)), expected) << name(shard);
      EXPECT_EQ(evaluation_loss_, loss) << name(shard);
      EXPECT_TRUE(saved(name(shard)) == arrays) << name(shard);
    }
    options_.ema_decay = 0;
    train(Shard::parameters, 12);
    EXPECT_NE(evaluation_loss_, loss);
    options_.ema_decay = 0.9;
  }
}

TEST_F(ShardedAverages, AreResumedByAnyStrategy) {
  const auto expected = train(Shard::none, 8, "whole");
  const auto loss = evaluation_loss_;
  for (const auto& [first, second] : {std::pair{Shard::none, Shard::parameters},
                                      {Shard::parameters, Shard::hybrid},
                                      {Shard::hybrid, Shard::gradients},
                                      {Shard::parameters, Shard::none}}) {
    const auto name = shard_mode_name(first) + " " + shard_mode_name(second);
    train(first, 4, name);
    EXPECT_EQ(train(second, 8, name), expected) << name;
    EXPECT_EQ(evaluation_loss_, loss) << name;
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
    for (const auto shard : kDivisions) trained(shard, ranks);
  }
}

}  // namespace
}  // namespace ddp::train
