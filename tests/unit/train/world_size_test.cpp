// SPDX-License-Identifier: Apache-2.0
// The larger models reach the same metrics on 1, 2 and 4 ranks with the same global batch.
#include <gtest/gtest.h>

#include <filesystem>

#include "ddp_runtime/data/open_data.h"
#include "ddp_runtime/models/model.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

RunResult run(int ranks, const models::ModelOptions& model, const data::DataPair& data,
              const TrainOptions& o) {
  torch::set_num_threads(1);
  return train_ranks(ranks, o, data, [&] { return models::make_model(model); })[0].result;
}

// A small gpt trained on a real text: the project's guide to its runtime.
class Language : public testing::Test {
 protected:
  Language() {
    options_.batch = 16;
    options_.epochs = 1;
    options_.steps = 20;
    options_.optimizer = {"adamw", 0.003, 0, 0.1};
    options_.schedule = Schedule::cosine;
    options_.warmup_steps = 4;
    options_.clip_norm = 1;
  }

  RunResult train(int ranks) {
    auto o = options_;
    o.batch /= ranks;
    data::DataOptions reading;
    reading.context = 16;
    const auto file = std::filesystem::path(SLURM_DDP_SOURCE_DIR) / "docs/runtime.md";
    models::ModelOptions model;
    model.name = "gpt";
    model.input = {16};
    model.classes = 256;
    model.width = 32;
    model.layers = 2;
    model.heads = 2;
    model.tokens = true;
    model.checkpoint_activations = true;
    return run(ranks, model, data::open_data("text:" + file.string(), reading), o);
  }

  TrainOptions options_;
};

TEST_F(Language, MetricsDoNotDependOnTheNumberOfRanks) {
  const auto one = train(1);
  EXPECT_LT(one.evaluation.loss, 4.8) << "better than the uniform guess of ln 256 = 5.5";
  for (const int ranks : {2, 4}) {
    const auto many = train(ranks);
    EXPECT_NEAR(many.train_loss, one.train_loss, 1e-4) << ranks;
    EXPECT_NEAR(many.evaluation.loss, one.evaluation.loss, 1e-4) << ranks;
    EXPECT_EQ(many.evaluation.targets, one.evaluation.targets);
  }
}

TEST_F(Language, LearnsEquallyWellInBfloat16) {
  const auto full = train(2);
  options_.precision = amp::Precision::bf16;
  const auto half = train(2);
  EXPECT_NE(half.parameters_crc32c, full.parameters_crc32c);
  EXPECT_NEAR(half.evaluation.loss, full.evaluation.loss, 0.02 * full.evaluation.loss);
}

// Batch normalization uses the mean over one rank's micro-batch. So W ranks compute the same as one
// rank that accumulates W micro-batches, but not the same as one rank with a batch W times as
// large. Running means are those of rank 0, which sees 1/W of the data, so early evaluations
// differ.
TEST(Images, ResidualNetworkMetricsDoNotDependOnTheNumberOfRanks) {
  data::DataOptions making;
  making.synthetic = {{3, 16, 16}, 4, 300};
  making.augmentation = {2, true};
  const auto data = data::open_data("synthetic", making);
  models::ModelOptions model;
  model.name = "resnet18";
  model.input = {3, 16, 16};
  model.classes = 4;
  model.width = 4;
  TrainOptions o;
  o.batch = 8;
  o.epochs = 2;  // in later ones, rounding errors grow
  o.optimizer.learning_rate = 0.005;
  o.optimizer.weight_decay = 1e-4;
  std::vector<RunResult> results;
  for (const int ranks : {1, 2, 4}) {
    o.micro_batches = 4 / ranks;
    results.push_back(run(ranks, model, data, o));
    EXPECT_EQ(results.back().step, 16);
    EXPECT_NEAR(results.back().train_loss, results[0].train_loss, 1e-4) << ranks;
    EXPECT_NEAR(results.back().evaluation.loss, results[0].evaluation.loss, 0.1) << ranks;
  }
}

}  // namespace
}  // namespace ddp::train
