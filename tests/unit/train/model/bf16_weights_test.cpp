// SPDX-License-Identifier: Apache-2.0
// Training with weights in bfloat16 and float32 masters of them.
#include "ddp_runtime/train/model/bf16_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ddp_runtime/models/model.h"
#include "ddp_runtime/optim/optimizers.h"
#include "ddp_runtime/parallel/sharded/memory/sharded_build.h"
#include "ddp_runtime/train/checkpoint/checkpointer.h"
#include "ddp_runtime/train/state/training_state.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

data::DataPair small_images() {
  return random_images({64, 1, 4, 4});
}

torch::nn::Sequential normed_network() {
  torch::nn::Sequential net(torch::nn::Flatten(),
                            torch::nn::LayerNorm(torch::nn::LayerNormOptions({16})),
                            torch::nn::Linear(16, 24), torch::nn::ReLU(), torch::nn::Linear(24, 2));
  const torch::NoGradGuard no_grad;
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(8);
  // Values that bfloat16 can hold, so that both types begin with the same ones.
  for (auto& p : net->parameters()) {
    p.copy_((torch::randn(p.sizes(), generator) * 0.3).to(torch::kBFloat16));
  }
  return net;
}

class Bf16Weights : public testing::Test {
 protected:
  Bf16Weights() {
    torch::set_num_threads(1);
    options_.batch = 16;
    options_.steps = 12;
    options_.precision = amp::Precision::bf16;
    options_.param_type = amp::Precision::bf16;
    options_.optimizer = {"adamw", 0.003, 0, 0.01};
  }

  // The end of rank 0.
  TrainedRank train(int ranks) {
    auto options = options_;
    options.batch /= ranks;
    return train_ranks(ranks, options, small_images(), normed_network)[0];
  }

  void save_in(const fs::path& directory) { options_.checkpoint.directory = directory; }
  void use_float32_weights() { options_.param_type = amp::Precision::fp32; }

  test::TemporaryDirectory temporary_;
  TrainOptions options_;
};

TEST_F(Bf16Weights, AreThoseThatMultiplyInputs) {
  const auto half = torch::kBFloat16;
  for (const auto& [name, value] : train(1).state) {
    const bool multiplies = name == "2.weight" || name == "4.weight";
    EXPECT_EQ(value.scalar_type(), multiplies ? half : torch::kFloat32) << name;
  }
  using namespace torch::nn;
  const Sequential others(Embedding(3, 4), EmbeddingBag(3, 4), LayerNorm(LayerNormOptions({2, 2})),
                          ConvTranspose2d(2, 2, 3), Conv2d(2, 2, 3));
  use_bf16_weights(*others);
  for (const auto& p : others->named_parameters()) {
    EXPECT_EQ(p.value().scalar_type(), p.key() == "4.weight" ? half : torch::kFloat32) << p.key();
  }
}

TEST_F(Bf16Weights, AreThoseThatTrainInFloat32) {
  using namespace torch::nn;
  const auto half = torch::kBFloat16;
  const auto full = torch::kFloat32;
  const Linear frozen(2, 3);
  for (auto& p : frozen->parameters()) p.requires_grad_(false);
  const Linear precise(2, 3);
  for (auto& p : precise->parameters()) p.set_data(p.detach().to(torch::kFloat64));
  // An output layer that shares its weight with the embedding of the inputs.
  const Embedding table(3, 4);
  Linear tied(LinearOptions(4, 3).bias(false));
  tied->weight = table->weight;
  const Sequential net(Linear(2, 2), Conv1d(2, 2, 3), Conv2d(2, 2, 3), Conv3d(2, 2, 3), frozen,
                       precise, table, tied);
  use_bf16_weights(*net);
  const std::map<std::string, torch::ScalarType> expected{{"0.weight", half},
                                                          {"0.bias", full},
                                                          {"1.weight", half},
                                                          {"1.bias", full},
                                                          {"2.weight", half},
                                                          {"2.bias", full},
                                                          {"3.weight", half},
                                                          {"3.bias", full},
                                                          {"4.weight", full},
                                                          {"4.bias", full},
                                                          {"5.weight", torch::kFloat64},
                                                          {"5.bias", torch::kFloat64},
                                                          {"6.weight", full},
                                                          {"7.weight", full}};
  std::map<std::string, torch::ScalarType> types;
  for (const auto& p : net->named_parameters()) types[p.key()] = p.value().scalar_type();
  EXPECT_EQ(types, expected);
}

// Autocast rounds float32 weights in each forward pass, and computes their gradients in bfloat16:
// without other ranks, only the place of the roundings differs.
TEST_F(Bf16Weights, OneRankTrainsLikeFloat32WeightsUnderAutocast) {
  const auto half = train(1);
  use_float32_weights();
  const auto full = train(1);
  EXPECT_EQ(half.result.train_loss, full.result.train_loss);
  EXPECT_EQ(half.result.evaluation.loss, full.result.evaluation.loss);
  ASSERT_EQ(half.state.size(), full.state.size());
  for (const auto& [name, value] : full.state) {
    const auto& rounded = half.state.at(name);
    EXPECT_TRUE(torch::equal(rounded, value.to(rounded.scalar_type()))) << name;
  }
}

// The arrays of a checkpoint have the names, types and values of a run with float32 weights.
TEST_F(Bf16Weights, RunContinuesWithTheOtherType) {
  const auto whole = train(1);
  for (const bool half_first : {true, false}) {
    save_in(temporary_.path() / (half_first ? "half-first" : "full-first"));
    options_.steps = 5;
    options_.param_type = half_first ? amp::Precision::bf16 : amp::Precision::fp32;
    train(1);
    options_.steps = 12;
    options_.param_type = half_first ? amp::Precision::fp32 : amp::Precision::bf16;
    const auto end = train(1);
    EXPECT_EQ(end.result.evaluation.loss, whole.result.evaluation.loss) << half_first;
    EXPECT_EQ(end.state.at("2.weight").scalar_type(),
              half_first ? torch::kFloat32 : torch::kBFloat16);
  }
}

TEST_F(Bf16Weights, CheckpointHoldsTheMasters) {
  save_in(temporary_.path());
  train(2);
  const auto newest = ckpt::CheckpointDirectory(temporary_.path()).newest_verified();
  ASSERT_TRUE(newest);
  int matrices = 0;
  for (const auto& array : newest->checkpoint.arrays()) {
    if (!array.name.starts_with("model/") || array.shape.size() < 2) continue;
    ++matrices;
    EXPECT_EQ(array.dtype, ckpt::DType::float32) << array.name;
    const auto stored = newest->checkpoint.read(array.name);
    std::vector<float> values(stored.bytes.size() / sizeof(float));
    std::memcpy(values.data(), stored.bytes.data(), stored.bytes.size());
    const auto master = torch::tensor(values);
    EXPECT_FALSE(torch::equal(master, master.to(torch::kBFloat16).to(torch::kFloat32)))
        << "the bits that bfloat16 cannot hold are missing";
  }
  EXPECT_EQ(matrices, 2);
}

// A program may have trained its weights in bfloat16 alone before, with state in bfloat16.
TEST_F(Bf16Weights, MastersBeginWithACheckpointOfShortWeights) {
  test::run_ranks(2, [&](comm::Group& group) {
    std::vector<torch::Tensor> saved;
    for (const bool masters : {false, true}) {
      auto net = normed_network();
      use_bf16_weights(*net);
      test::move_to_test_device(*net);
      optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(0.1));
      if (masters) optimizer.keep_masters();
      const UserState none;
      TrainingState state(group, *net, optimizer, nullptr, none);
      CheckpointOptions options;
      options.directory = temporary_.path();
      Checkpointer checkpointer(group, state, options, {{"model", "net"}});
      if (!masters) {
        for (auto& p : net->parameters()) p.mutable_grad() = torch::ones_like(p).detach();
        optimizer.step();
        for (const auto& p : net->parameters()) saved.push_back(p.detach().clone());
        checkpointer.save_last(Position{});
        continue;
      }
      ASSERT_TRUE(checkpointer.resume(1));
      const auto loaded = net->parameters();
      for (std::size_t i = 0; i < saved.size(); ++i) {
        EXPECT_TRUE(torch::equal(loaded[i], saved[i])) << i;
        const auto master = optimizer.masters()->values_of(loaded[i]);
        EXPECT_EQ(master.scalar_type(), torch::kFloat32);
        EXPECT_TRUE(torch::equal(master, saved[i].to(torch::kFloat32))) << i;
      }
    }
  });
}

// A program may have converted its module, or have trained it before.
TEST_F(Bf16Weights, HaveMastersWhateverTheOptions) {
  use_float32_weights();
  save_in(temporary_.path());
  train_ranks(1, options_, small_images(), [] {
    auto net = normed_network();
    use_bf16_weights(*net);
    return net;
  });
  const auto newest = ckpt::CheckpointDirectory(temporary_.path()).newest_verified();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->checkpoint.find("model/2.weight")->dtype, ckpt::DType::float32);
}

// A program may train a part of the module with another optimizer.
TEST_F(Bf16Weights, OthersThanTheOptimizersAreSavedAsTheyAre) {
  test::run_ranks(1, [&](comm::Group& group) {
    auto net = normed_network();
    use_bf16_weights(*net);
    test::move_to_test_device(*net);
    optim::SGD optimizer({net->parameters()[2]}, torch::optim::SGDOptions(0.1));
    optimizer.keep_masters();
    const UserState none;
    TrainingState state(group, *net, optimizer, nullptr, none);
    for (int save = 0; save < 2; ++save) {
      for (const auto& array : state.collect()) {
        const auto& [name, tensor, division] = array;
        EXPECT_FALSE(division) << name;
        if (name == "model/2.weight") {
          EXPECT_EQ(tensor.scalar_type(), torch::kFloat32);
        }
        if (name != "model/4.weight") continue;
        EXPECT_EQ(tensor.scalar_type(), torch::kBFloat16);
        EXPECT_TRUE(torch::equal(tensor, net->parameters()[4]));
      }
      net->parameters()[4].data().fill_(0.75);
    }
  });
}

TEST_F(Bf16Weights, AreConvertedBeforeTheyAreDivided) {
  test::run_ranks(2, [](comm::Group& group) {
    auto converted = test::on_test_device(torch::nn::Linear(4, 6));
    auto late = test::on_test_device(torch::nn::Linear(4, 6));
    ShardedBuild build(group);
    use_bf16_weights(*converted);
    build.add(*converted);
    use_bf16_weights(*converted);
    EXPECT_EQ(converted->weight.scalar_type(), torch::kBFloat16);
    build.add(*late);
    EXPECT_THAT(error_of([&] { use_bf16_weights(*late); }),
                HasSubstr("a weight of shape [6, 4] was divided as float32 when it was built"));
  });
}

TEST_F(Bf16Weights, NeedAutocast) {
  options_.precision = amp::Precision::fp32;
  EXPECT_THAT(error_of([&] { train(1); }), HasSubstr("--param-type bf16 needs --precision bf16"));
  options_.param_type = amp::Precision::fp16;
  EXPECT_THAT(error_of([&] { train(1); }), HasSubstr("--param-type must be fp32 or bf16"));
  options_.param_type = options_.precision = amp::Precision::bf16;
  options_.optimizer = {"sgd", 0.1, 0.9, 0};
  options_.micro_batches = 17;
  EXPECT_THAT(error_of([&] { train(1); }), HasSubstr("use --accumulate 16 or less"));
  options_.micro_batches = 1;
  options_.staleness = 1;
  EXPECT_THAT(error_of([&] { train(1); }),
              HasSubstr("--staleness cannot be combined with --param-type bf16"));
}

}  // namespace
}  // namespace ddp::train
