// SPDX-License-Identifier: Apache-2.0
// The models compared with their published figures, and the guarantees of each model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/models/model.h"
#include "ddp_runtime/torch_compat.h"
#include "tests/unit/error_of.h"

namespace ddp::models {
namespace {

using testing::HasSubstr;

ModelOptions images(const std::string& name, std::int64_t side, std::int64_t classes,
                    std::int64_t width = 0) {
  ModelOptions o;
  o.name = name;
  o.input = {3, side, side};
  o.classes = classes;
  o.width = width;
  return o;
}

ModelOptions text(std::int64_t context, std::int64_t width, std::int64_t layers,
                  std::int64_t heads) {
  ModelOptions o;
  o.name = "gpt";
  o.input = {context};
  o.classes = 256;
  o.width = width;
  o.layers = layers;
  o.heads = heads;
  o.tokens = true;
  return o;
}

std::string error_of(const ModelOptions& options) {
  return ddp::error_of<UsageError>([&] { make_model(options); });
}

torch::Tensor some_tokens(std::int64_t n, std::int64_t context) {
  return torch::randint(256, {n, context}, torch::kInt64);
}

torch::Tensor language_loss(Model& model, const torch::Tensor& tokens) {
  return torch::nn::functional::cross_entropy(
      model.forward(tokens).to(torch::kFloat32).flatten(0, 1), tokens.roll(-1, 1).flatten());
}

std::vector<torch::Tensor> gradients(Model& model, const torch::Tensor& loss) {
  for (auto& p : model.parameters()) p.mutable_grad().reset();
  loss.backward();
  std::vector<torch::Tensor> result;
  for (const auto& p : model.parameters()) result.push_back(p.grad().clone());
  return result;
}

// torchvision.models.resnet18() and resnet50() have these names, and so do the published weights.
TEST(ResNet, HasTorchvisionParameterNames) {
  const auto r18 = make_model(images("resnet18", 224, 1000));
  EXPECT_EQ(parameter_count(*r18), 11689512);
  EXPECT_EQ(parameter_count(*make_model(images("resnet50", 224, 1000))), 25557032);
  const auto names = r18->named_parameters();
  EXPECT_EQ(names.size(), 62U);
  for (const char* name :
       {"conv1.weight", "bn1.bias", "layer1.0.conv1.weight", "layer4.1.bn2.weight",
        "layer2.0.downsample.0.weight", "layer2.0.downsample.1.bias", "fc.bias"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_FALSE(names.contains("layer1.0.downsample.0.weight"))
      << "the shapes are already equal in the first stage";
}

// With a 3x3 stem for 3 channels and 10 classes: 11,689,512 - 64*3*(49-9) - 513*990 = 11,173,962.
TEST(ResNet, SmallImagesGetTheCifarStem) {
  const auto model = make_model(images("resnet18", 32, 10));
  EXPECT_EQ(parameter_count(*model), 11173962);
  EXPECT_EQ(model->named_parameters()["conv1.weight"].sizes(), (std::vector<int64_t>{64, 3, 3, 3}));
  EXPECT_EQ(make_model(images("resnet18", 33, 10))->named_parameters()["conv1.weight"].size(2), 7);
}

TEST(ResNet, ScoresImagesOfAnySize) {
  for (const char* name : {"resnet18", "resnet50", "cifar-cnn"}) {
    for (const std::int64_t side : {8, 32, 40}) {
      const auto model = make_model(images(name, side, 7, 4));
      const auto scores = model->forward(torch::rand({2, 3, side, side}));
      EXPECT_EQ(scores.sizes(), (std::vector<int64_t>{2, 7})) << name << side;
      scores.sum().backward();
      for (const auto& p : model->named_parameters()) {
        EXPECT_TRUE(p.value().grad().defined()) << name << " " << p.key();
      }
    }
  }
}

// The variance is 2 / (output channels x kernel area).
TEST(ResNet, UsesHeInitialization) {
  torch::manual_seed(1);
  const auto model = make_model(images("resnet18", 32, 10));
  const auto parameters = model->named_parameters();
  const auto spread = [&](const char* name) { return parameters[name].std().item<double>(); };
  EXPECT_NEAR(spread("layer3.1.conv2.weight"), std::sqrt(2.0 / (256 * 9)), 2e-4);
  EXPECT_NEAR(spread("layer4.0.downsample.0.weight"), std::sqrt(2.0 / 512), 1e-3);
  EXPECT_TRUE(parameters["layer4.0.bn1.weight"].eq(1).all().item<bool>());
}

// A stride in the second convolution would shrink the image by 4 per stage instead of 2.
TEST(ResNet, EachStageHalvesTheImageOnce) {
  const auto model = make_model(images("resnet50", 32, 10, 4));
  const auto blocks = model->named_modules();
  const auto stride = [&](const char* name) {
    return (*blocks[name]->as<torch::nn::Conv2d>()->options.stride())[0];
  };
  EXPECT_EQ(stride("layer2.0.conv1"), 1);
  EXPECT_EQ(stride("layer2.0.conv2"), 2);
  EXPECT_EQ(stride("layer2.0.downsample.0"), 2);
  EXPECT_EQ(stride("layer2.1.conv2"), 1);
}

// With the width w, each layer has 12 w^2 + 13 w parameters, the embeddings have 256 w + context w,
// and the last norm has 2 w.
TEST(Gpt, HasGpt2ParametersAndATiedOutput) {
  const std::int64_t w = 48;
  const auto model = make_model(text(32, w, 3, 4));
  EXPECT_EQ(parameter_count(*model), 3 * (12 * w * w + 13 * w) + 256 * w + 32 * w + 2 * w);
  std::vector<std::string> vocabulary_sized;
  for (const auto& p : model->named_parameters()) {
    if (p.value().size(0) == 256) vocabulary_sized.push_back(p.key());
  }
  EXPECT_THAT(vocabulary_sized, testing::ElementsAre("tokens.weight"));
}

TEST(Gpt, StartsWithAUniformGuess) {
  torch::manual_seed(1);
  const auto model = make_model(text(32, 32, 2, 2));
  EXPECT_NEAR(language_loss(*model, some_tokens(8, 32)).item<double>(), std::log(256.0), 0.05);
  const auto parameters = model->named_parameters();
  EXPECT_NEAR(parameters["blocks.0.expand.weight"].std().item<double>(), 0.02, 1e-3);
  EXPECT_NEAR(parameters["blocks.1.contract.weight"].std().item<double>(), 0.01, 5e-4);
  EXPECT_TRUE(parameters["blocks.0.qkv.bias"].eq(0).all().item<bool>());
}

TEST(Gpt, ScoresDependOnlyOnThePast) {
  torch::manual_seed(1);
  const auto model = make_model(text(16, 32, 2, 2));
  auto tokens = some_tokens(1, 16);
  const auto before = model->forward(tokens);
  tokens[0][9] = (tokens[0][9] + 1) % 256;
  const auto after = model->forward(tokens);
  EXPECT_TRUE(torch::equal(before.slice(1, 0, 9), after.slice(1, 0, 9)));
  for (int t = 9; t < 16; ++t) EXPECT_FALSE(torch::equal(before[0][t], after[0][t])) << t;
}

// Holds for PyTorch 2.x, which has an operator for it, and for 1.13, where it is built from parts.
TEST(CausalAttention, IsASoftmaxOverThePast) {
  torch::manual_seed(1);
  const auto random = [] { return torch::randn({2, 3, 5, 4}, torch::kFloat64); };
  const auto q = random(), k = random(), v = random();
  const auto mixed = torch_compat::causal_attention(q, k, v);
  for (std::int64_t t = 0; t < 5; ++t) {
    const auto scores = (q.select(2, t).unsqueeze(2) * k.slice(2, 0, t + 1)).sum(-1) / 2;
    const auto expected = (torch::softmax(scores, -1).unsqueeze(-1) * v.slice(2, 0, t + 1)).sum(2);
    EXPECT_TRUE(torch::allclose(mixed.select(2, t), expected, 1e-9, 1e-12)) << "position " << t;
  }
}

TEST(Gpt, AcceptsTextsShorterThanItsContext) {
  const auto model = make_model(text(16, 32, 1, 2));
  EXPECT_EQ(model->forward(some_tokens(3, 5)).sizes(), (std::vector<int64_t>{3, 5, 256}));
}

// Runs two passes with an update in between. The tests of ddp::checkpointed() cover the effect of
// bf16 on layers that gpt does not have.
TEST(Gpt, RecomputingActivationsIsBitwiseTheSame) {
  for (const auto precision : {amp::Precision::fp32, amp::Precision::bf16}) {
    std::vector<std::vector<torch::Tensor>> results;
    for (const bool recompute : {false, true}) {
      torch::manual_seed(1);
      auto options = text(16, 32, 3, 2);
      options.checkpoint_activations = recompute;
      const auto model = make_model(options);
      const auto tokens = some_tokens(2, 16);
      for (int pass = 0; pass < 2; ++pass) {
        torch::Tensor loss;
        {
          const amp::AutocastGuard autocast(torch::kCPU, precision);
          loss = language_loss(*model, tokens);
        }
        const auto found = gradients(*model, loss);
        const torch::NoGradGuard no_grad;
        for (auto& p : model->parameters()) p.sub_(p.grad());
        results.push_back(found);
      }
    }
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t i = 0; i < results[0].size(); ++i) {
        EXPECT_TRUE(torch::equal(results[static_cast<std::size_t>(pass)][i],
                                 results[static_cast<std::size_t>(pass) + 2][i]))
            << "pass " << pass << ", parameter " << i;
      }
    }
  }
}

TEST(MakeModel, RefusesInvalidOptionsWithARemedy) {
  EXPECT_THAT(error_of(images("vgg", 32, 10)),
              HasSubstr("use mlp, mnist-cnn, cifar-cnn, resnet18, resnet50 or gpt"));
  EXPECT_THAT(error_of(images("gpt", 32, 10)), HasSubstr("use --data text:FILE"));
  EXPECT_THAT(error_of(text(16, 30, 2, 4)), HasSubstr("multiple of --heads"));
  EXPECT_THAT(error_of(images("resnet18", 7, 10)), HasSubstr("at least 8 x 8"));
  for (const char* name : {"mnist-cnn", "cifar-cnn", "resnet18", "resnet50"}) {
    auto options = images(name, 32, 10);
    options.layers = 3;
    EXPECT_THAT(error_of(options), HasSubstr("leave out --layers")) << name;
    options = images(name, 32, 10);
    options.heads = 2;
    EXPECT_THAT(error_of(options), HasSubstr("leave out --heads")) << name;
    options = images(name, 32, 10);
    options.checkpoint_activations = true;
    EXPECT_THAT(error_of(options), HasSubstr("leave out --checkpoint-activations")) << name;
    options = images(name, 32, 10);
    options.input = {64};
    EXPECT_THAT(error_of(options), HasSubstr("samples of shape [64]")) << name;
    options = text(16, 0, 0, 0);
    options.name = name;
    EXPECT_THAT(error_of(options), HasSubstr("use --model gpt")) << name;
  }
}

// A pipeline runs the pieces, so they must be the model.
TEST(Pieces, ComputeWhatTheModelDoes) {
  auto mlp = images("mlp", 4, 10, 6);
  mlp.layers = 3;
  auto mnist = images("mnist-cnn", 8, 10, 4);
  auto checkpointed = text(8, 8, 3, 2);
  checkpointed.checkpoint_activations = true;
  const std::vector<std::pair<ModelOptions, std::size_t>> models = {
      {mlp, 4},
      {mnist, 4},
      {images("cifar-cnn", 8, 10, 4), 7},
      {images("resnet18", 16, 10, 4), 10},
      {images("resnet50", 64, 10, 4), 18},
      {text(8, 8, 3, 2), 5},
      {checkpointed, 5}};
  for (const auto& [options, count] : models) {
    torch::manual_seed(1);
    const auto model = make_model(options);
    const auto pieces = model->pieces();
    EXPECT_EQ(pieces.size(), count) << options.name;
    const auto side = options.tokens ? 0 : options.input.back();
    const auto input = options.tokens ? some_tokens(2, 8) : torch::randn({2, 3, side, side});
    auto x = input;
    for (const auto& piece : pieces) {
      x = piece.forward(x);
      const auto name = piece.name;
      const auto modules = model->named_modules();
      ASSERT_TRUE(modules.contains(name)) << options.name << " has no " << name;
      EXPECT_EQ(modules[name], piece.modules.front()) << name;
    }
    const auto by_pieces = gradients(*model, x.square().sum());
    const auto whole = model->forward(input);
    EXPECT_TRUE(torch::equal(x, whole)) << options.name;
    const auto by_model = gradients(*model, whole.square().sum());
    for (std::size_t i = 0; i < by_model.size(); ++i) {
      EXPECT_TRUE(torch::equal(by_pieces[i], by_model[i])) << options.name << " " << i;
    }
  }
}

}  // namespace
}  // namespace ddp::models
