// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/memory/training_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "ddp_runtime/models/model.h"

namespace ddp::train {
namespace {

using testing::ElementsAre;

// Two hidden layers of 16 x 16 and an output of 16 x 10, with biases, in float32.
constexpr std::int64_t kLayer = (16 * 16 + 16) * 4;
constexpr std::int64_t kOutput = (16 * 10 + 10) * 4;
constexpr std::int64_t kAll = 2 * kLayer + kOutput;

std::shared_ptr<models::Model> mlp() {
  return models::make_model(
      {.name = "mlp", .input = {16}, .classes = 10, .width = 16, .layers = 2});
}

TrainOptions options_with(Shard shard) {
  TrainOptions options;
  options.shard = shard;
  options.units = {"hidden.*"};
  return options;
}

std::optional<ShardPrediction> predict(const torch::nn::Module& model, const TrainOptions& options,
                                       int ranks = 2, int nodes = 1) {
  const torch::optim::AdamW optimizer(model.parameters(), torch::optim::AdamWOptions(1e-3));
  return predict_shards(model, optimizer, options, ranks, nodes);
}

TEST(TrainingSizes, SizesOfAModelWithUnits) {
  const auto model = mlp();
  const auto sizes = predict(*model, options_with(Shard::none))->sizes;
  EXPECT_EQ(sizes.trained, kAll);
  EXPECT_EQ(sizes.frozen, 0);
  EXPECT_EQ(sizes.state, 2 * kAll);
  EXPECT_EQ(sizes.fresh_gradients, 16 * 16 * 4);
  EXPECT_EQ(sizes.largest_bucket, kAll) << "all fit into a bucket of 1 MiB";
  EXPECT_EQ(sizes.units.count, 2);
  EXPECT_EQ(sizes.units.root, kOutput);
  EXPECT_EQ(sizes.units.largest, kLayer);
  EXPECT_EQ(sizes.units.last, kLayer);
  EXPECT_EQ(sizes.units.partly_frozen, 0);
  EXPECT_EQ(sizes.units.largest_of_gradients, kLayer);
}

TEST(TrainingSizes, FrozenParametersHaveNoGradients) {
  const auto model = mlp();
  for (auto& item : model->named_parameters()) {
    if (item.key() == "hidden.0.weight" || item.key() == "hidden.1.weight") {
      item.value().requires_grad_(false);
    }
  }
  auto options = options_with(Shard::none);
  // Each weight ends a bucket.
  options.parallel.buckets = {.first_bytes = 128, .bytes = 128};
  const auto sizes = predict(*model, options)->sizes;
  constexpr std::int64_t kFrozen = 2 * 16 * 16 * 4;
  EXPECT_EQ(sizes.trained, kAll - kFrozen);
  EXPECT_EQ(sizes.frozen, kFrozen);
  EXPECT_EQ(sizes.fresh_gradients, 16 * 10 * 4);
  EXPECT_EQ(sizes.largest_bucket, kOutput);
  EXPECT_EQ(sizes.units.largest, kLayer);
  EXPECT_EQ(sizes.units.partly_frozen, 2 * kLayer);
  EXPECT_EQ(sizes.units.largest_of_gradients, kOutput);
}

// Only one weight is large enough.
TEST(TrainingSizes, OffloadedStateHasBuffers) {
  const auto model =
      models::make_model({.name = "mlp", .input = {16}, .classes = 10, .width = 256, .layers = 2});
  constexpr std::int64_t kWhole = (16 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10) * 8;
  auto options = options_with(Shard::none);
  EXPECT_EQ(predict(*model, options)->sizes.offloaded, 0);
  options.offload_directory = "disk";
  const auto sizes = predict(*model, options)->sizes;
  EXPECT_EQ(sizes.state, kWhole - 256 * 256 * 8);
  EXPECT_EQ(sizes.offloaded, 256 * 256 * 8);
  EXPECT_EQ(sizes.offload_buffers, std::int64_t{3} << 23);  // windows of 8 MiB
}

TEST(TrainingSizes, FreshGradientsOnADeviceAreThoseOfABucket) {
  torch::nn::Module module;
  module.register_parameter("weight", torch::empty({64}, torch::kMeta));
  module.register_parameter("bias", torch::empty({32}, torch::kMeta));
  EXPECT_EQ(predict(module, options_with(Shard::none))->sizes.fresh_gradients, (64 + 32) * 4);
}

TEST(TrainingSizes, StateOfOptimizers) {
  using namespace torch::optim;
  const std::vector<torch::Tensor> parameters = {torch::zeros({10}).requires_grad_()};
  const auto bytes = [&](const Optimizer& optimizer) { return bytes_of_state(optimizer); };
  EXPECT_EQ(bytes(SGD(parameters, SGDOptions(0.1))), 0);
  EXPECT_EQ(bytes(SGD(parameters, SGDOptions(0.1).momentum(0.9))), 40);
  EXPECT_EQ(bytes(Adam(parameters, AdamOptions(0.1))), 80);
  EXPECT_EQ(bytes(Adam(parameters, AdamOptions(0.1).amsgrad(true))), 120);
  EXPECT_EQ(bytes(AdamW(parameters, AdamWOptions(0.1))), 80);
  EXPECT_EQ(bytes(AdamW(parameters, AdamWOptions(0.1).amsgrad(true))), 120);
  EXPECT_EQ(bytes(RMSprop(parameters, RMSpropOptions(0.1))), 40);
  EXPECT_EQ(bytes(RMSprop(parameters, RMSpropOptions(0.1).momentum(0.9).centered(true))), 120);
  EXPECT_EQ(bytes(Adagrad(parameters, AdagradOptions(0.1))), 40);
  EXPECT_EQ(bytes(LBFGS(parameters, LBFGSOptions(0.1))), std::nullopt);
  // With a float32 master.
  const std::vector<torch::Tensor> shorts = {torch::zeros({10}, torch::kBFloat16)};
  EXPECT_EQ(bytes(SGD(shorts, SGDOptions(0.1).momentum(0.9))), 80);
}

TEST(TrainingSizes, StrategiesThatTheModelCanUse) {
  using enum ShardStrategy;
  const auto model = mlp();
  const auto strategies = [&](const TrainOptions& options, int ranks = 2, int nodes = 1) {
    const auto prediction = predict(*model, options, ranks, nodes);
    return prediction->possible;
  };
  const auto chosen = [&](const TrainOptions& options) { return predict(*model, options)->chosen; };
  auto options = options_with(Shard::parameters);
  EXPECT_EQ(chosen(options), parameters);
  EXPECT_THAT(strategies(options),
              ElementsAre(none, optimizer, gradients, parameters_kept, parameters, hybrid));
  EXPECT_THAT(strategies(options, 2, 2),
              ElementsAre(none, optimizer, gradients, parameters_kept, parameters));
  options.reshard_after_forward = false;
  EXPECT_EQ(chosen(options), parameters_kept);
  options = options_with(Shard::optimizer);
  EXPECT_EQ(chosen(options), optimizer);
  // Units that the model does not have are an error of another strategy only.
  options.units = {"blocks.*"};
  EXPECT_THAT(strategies(options), ElementsAre(none, optimizer, gradients, hybrid));
  options.units.clear();
  EXPECT_THAT(strategies(options), ElementsAre(none, optimizer, gradients, hybrid));
}

TEST(TrainingSizes, AsynchronousTrainingHasNoPrediction) {
  auto options = options_with(Shard::none);
  options.staleness = 1;
  EXPECT_FALSE(predict(*mlp(), options));
}

TEST(TrainingSizes, LayoutHasNodesAndMicroBatches) {
  auto options = options_with(Shard::none);
  options.micro_batches = 3;
  const auto layout = predict(*mlp(), options, 4, 2)->layout;
  EXPECT_EQ(layout.ranks, 4);
  EXPECT_EQ(layout.nodes, 2);
  EXPECT_EQ(layout.micro_batches, 3);
}

}  // namespace
}  // namespace ddp::train
