// SPDX-License-Identifier: Apache-2.0
// Runs whose gradients are reduced in another type than their own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ddp_runtime/train/memory/training_sizes.h"
#include "ddp_runtime/train/model/bf16_weights.h"
#include "tests/unit/error_of.h"
#include "tests/unit/train/small_runs.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;

class ReduceTypeTraining : public SmallRuns {};

TEST_F(ReduceTypeTraining, Fp32AddsUpMoreMicroBatchesOfBf16Weights) {
  options_.precision = options_.param_type = amp::Precision::bf16;
  options_.parallel.reduce_type = torch::kFloat32;
  options_.batch = 1;
  options_.micro_batches = 17;
  for (const auto shard : {Shard::none, Shard::gradients}) EXPECT_NE(train(shard, 1), 0U);
  options_.parallel.reduce_type = std::nullopt;
  EXPECT_THAT(error_of([&] { train(Shard::gradients, 1); }), HasSubstr("--reduce-type fp32"));
}

TEST_F(ReduceTypeTraining, DoesNotGoTogetherWithStaleness) {
  options_.staleness = 1;
  options_.optimizer.name = "sgd";
  options_.parallel.reduce_type = torch::kBFloat16;
  if (test::on_device()) GTEST_SKIP() << "asynchronous training is for CPUs";
  EXPECT_THAT(error_of([&] { train(Shard::none, 1); }),
              HasSubstr("--staleness cannot be combined with --reduce-type"));
}

// --- Predictions

std::optional<ShardPrediction> predict_reduced(const torch::nn::Module& model,
                                               const TrainOptions& options, int ranks) {
  const torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));
  return predict_shards(model, optimizer, options, ranks, 1);
}

TEST(ReducedSizesOfTraining, FollowTheTypes) {
  constexpr std::int64_t kWeights = 2 * 16 * 16 + 16 * 10;
  constexpr std::int64_t kBiases = 2 * 16 + 10;
  const auto model =
      models::make_model({.name = "mlp", .input = {16}, .classes = 10, .width = 16, .layers = 2});
  TrainOptions options;
  options.shard = Shard::parameters;
  options.units = {"hidden.*"};
  EXPECT_FALSE(predict_reduced(*model, options, 2)->sizes.reduced);
  EXPECT_EQ(predict_reduced(*model, options, 2)->reduce_type, "auto");
  options.parallel.reduce_type = torch::kBFloat16;
  EXPECT_EQ(predict_reduced(*model, options, 2)->reduce_type, "bf16");
  EXPECT_FALSE(predict_reduced(*model, options, 1)->sizes.reduced) << "nothing is sent";
  const auto halved = predict_reduced(*model, options, 2)->sizes;
  ASSERT_TRUE(halved.reduced);
  EXPECT_EQ(halved.trained, 4 * (kWeights + kBiases));
  EXPECT_EQ(halved.reduced->sums, 4 * (kWeights + kBiases));
  EXPECT_EQ(halved.reduced->sent, 2 * (kWeights + kBiases));
  EXPECT_EQ(halved.reduced->largest_bucket, 2 * (kWeights + kBiases));
  EXPECT_EQ(halved.reduced->largest_of_unit, 2 * (16 * 16 + 16));
  // The biases remain float32.
  use_bf16_weights(*model);
  options.parallel.reduce_type = torch::kFloat32;
  const auto widened = predict_reduced(*model, options, 2)->sizes;
  ASSERT_TRUE(widened.reduced);
  EXPECT_EQ(widened.trained, 2 * kWeights + 4 * kBiases);
  EXPECT_EQ(widened.reduced->sums, 4 * (kWeights + kBiases));
  EXPECT_EQ(widened.reduced->sent, 4 * (kWeights + kBiases));
  EXPECT_EQ(widened.reduced->largest_of_unit, 4 * (16 * 16 + 16));
  EXPECT_EQ(widened.units.largest_of_gradients, 2 * 16 * 16 + 4 * 16);
}

}  // namespace
}  // namespace ddp::train
