// SPDX-License-Identifier: Apache-2.0
// Runs of a few steps with a small model, with and without shards, of which the weights and the
// checkpoints are compared.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <map>
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

inline constexpr auto kStrategies = {Shard::optimizer, Shard::gradients, Shard::parameters,
                                     Shard::hybrid};

// Names of arrays -> their bytes, without generators and the order of buckets.
inline std::map<std::string, std::vector<std::byte>> arrays_of_newest(
    const std::filesystem::path& directory) {
  std::map<std::string, std::vector<std::byte>> arrays;
  const auto newest = ckpt::CheckpointDirectory(directory).newest_verified();
  if (!newest) return arrays;
  for (const auto& array : newest->checkpoint.arrays()) {
    if (array.name.starts_with("rng/") || array.name.starts_with("ddp/")) continue;
    arrays[array.name] = newest->checkpoint.read(array.name).bytes;
  }
  return arrays;
}

class SmallRuns : public testing::Test {
 protected:
  SmallRuns() {
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
      if (overflowing_call_ > 0) task.loss = overflowing_loss(group.rank());
      Trainer trainer(group, task, options);
      const auto result = trainer.fit();
      if (group.rank() != 0) return;
      checksum = result.parameters_crc32c;
      loss_ = result.evaluation.loss;
    });
    return checksum;
  }
  LossFunction overflowing_loss(int rank) const {
    return [bad = overflowing_call_, rank, call = 0](const torch::Tensor& scores,
                                                     const torch::Tensor& targets) mutable {
      if (scores.requires_grad() && ++call == bad && rank == 1) {
        scores.register_hook([](const torch::Tensor& g) { return g * 1e38 * 1e10; });
      }
      return mean_cross_entropy(scores, targets);
    };
  }
  std::map<std::string, std::vector<std::byte>> saved(const std::string& directory) const {
    return arrays_of_newest(temporary_.path() / directory);
  }

  test::TemporaryDirectory temporary_;
  TrainOptions options_;
  data::DataPair data_;
  int overflowing_call_ = 0;
  double loss_ = 0;  // evaluated after the last run
};

}  // namespace ddp::train
