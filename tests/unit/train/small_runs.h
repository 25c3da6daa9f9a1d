// SPDX-License-Identifier: Apache-2.0
// Runs of a few steps with a small model, with and without shards, of which the weights and the
// checkpoints are compared.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>

#include "ddp_runtime/models/model.h"
#include "ddp_runtime/train/options/shard_mode.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/saved_arrays.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {

inline constexpr auto kStrategies = {Shard::optimizer, Shard::gradients, Shard::parameters,
                                     Shard::hybrid};

class SmallRuns : public testing::Test {
 protected:
  SmallRuns() {
    torch::set_num_threads(1);
    options_.batch = 8;
    options_.optimizer = {"adamw", 0.003, 0.9, 0.01};
  }
  // The checksum of the parameters.
  std::uint32_t train(Shard shard, std::int64_t steps, const std::string& directory = "",
                      int ranks = 2) {
    auto options = options_;
    options.shard = shard;
    options.steps = steps;
    if (!directory.empty()) options.checkpoint.directory = temporary_.path() / directory;
    const auto make = [] {
      return models::make_model({.name = "mlp", .input = {1, 4, 4}, .classes = 2, .width = 24});
    };
    const auto result = train_ranks(ranks, options, data_, make,
                                    [&](auto& rank) {
                                      rank.options.units = rank.model->units();
                                      if (overflowing_call_ > 0) {
                                        rank.task.loss = overflowing_loss(rank.group.rank());
                                      }
                                    })[0]
                            .result;
    loss_ = result.evaluation.loss;
    return result.parameters_crc32c;
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
  Saved saved(const std::string& directory) const {
    return newest_in(temporary_.path() / directory);
  }

  test::TemporaryDirectory temporary_;
  TrainOptions options_;
  data::DataPair data_ = random_images({64, 1, 4, 4});
  // The call of rank 1's loss whose gradients overflow, from 1; 0: the loss is the default one.
  int overflowing_call_ = 0;
  static constexpr int kNever = std::numeric_limits<int>::max();
  double loss_ = 0;  // evaluated after the last run
};

}  // namespace ddp::train
