// SPDX-License-Identifier: Apache-2.0
// Models whose weights are not in the order of their dimensions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/errors.h"
#include "ddp_runtime/train/model/channels_last.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/train/trained_ranks.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;

torch::nn::Sequential network() {
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)),
                            torch::nn::ReLU(), torch::nn::Conv2d(4, 5, 3), torch::nn::Flatten(),
                            torch::nn::Linear(80, 2));
  const torch::NoGradGuard no_grad;
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(8);
  for (auto& p : net->parameters()) p.copy_(torch::randn(p.sizes(), generator) * 0.1);
  return net;
}

class MemoryFormats : public testing::Test {
 protected:
  MemoryFormats() {
    torch::set_num_threads(1);
    options_.batch = 8;
    options_.optimizer = {"adamw", 0.01, 0, 0.01};
  }

  // The result of rank 0, whose parameters are left in `parameters_`, in the order of their
  // dimensions.
  RunResult train(const TrainOptions& options, bool own_format = false) {
    const auto make = [&] {
      auto net = network();
      if (own_format) store_channels_last(*net, "net");
      return net;
    };
    const auto ends = train_ranks(2, options, random_images({32, 3, 6, 6}), make, [&](auto& rank) {
      if (rank.group.rank() != 0) return;
      rank.task.forward = [this, &net = rank.model](const torch::Tensor& x) {
        inputs_last_ = x.is_contiguous(torch::MemoryFormat::ChannelsLast);
        return net->forward(x);
      };
    });
    const auto& weight = ends[0].state.at("0.weight");
    weights_last_ = weight.is_contiguous(torch::MemoryFormat::ChannelsLast);
    parameters_.clear();
    for (const auto& [name, value] : ends[0].state) parameters_.push_back(value.contiguous());
    return ends[0].result;
  }

  test::TemporaryDirectory temporary_;
  TrainOptions options_;
  std::vector<torch::Tensor> parameters_;
  bool weights_last_ = false;
  bool inputs_last_ = false;
};

// The state of the optimizer has the order of the parameter; a checkpoint has that of its
// dimensions.
TEST_F(MemoryFormats, ResumedRunHasTheMomentaOfTheRightWeights) {
  options_.steps = 4;
  const auto whole = train(options_, true);
  options_.checkpoint.directory = temporary_.path();
  options_.steps = 3;
  train(options_, true);
  options_.steps = 4;
  EXPECT_EQ(train(options_, true).parameters_crc32c, whole.parameters_crc32c);
}

TEST_F(MemoryFormats, ChannelsLastTrainsTheSameModel) {
  const auto plain = train(options_);
  const auto expected = parameters_;
  EXPECT_FALSE(weights_last_);
  EXPECT_FALSE(inputs_last_);
  options_.channels_last = true;
  const auto last = train(options_);
  EXPECT_TRUE(weights_last_);
  EXPECT_TRUE(inputs_last_);
  EXPECT_NEAR(last.evaluation.loss, plain.evaluation.loss, 1e-4);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(torch::allclose(parameters_[i], expected[i], 1e-3, 1e-4)) << i;
  }
}

TEST_F(MemoryFormats, RunContinuesInTheOtherFormat) {
  options_.steps = 3;
  options_.checkpoint.directory = temporary_.path();
  options_.channels_last = true;
  const auto first = train(options_);
  options_.channels_last = false;
  EXPECT_EQ(train(options_).parameters_crc32c, first.parameters_crc32c) << "nothing is left to do";
  EXPECT_FALSE(weights_last_);
}

// The format of videos and of sequences is another one.
TEST_F(MemoryFormats, ChannelsLastIsForImages) {
  for (const auto& sizes :
       std::vector<std::vector<std::int64_t>>{{2, 3}, {2, 3, 4}, {2, 3, 4, 4, 4}}) {
    const auto values = torch::ones(sizes);
    EXPECT_TRUE(in_channels_last(values).is_same(values)) << values.sizes();
  }
  const auto images = torch::ones({2, 3, 4, 4});
  EXPECT_TRUE(in_channels_last(images).is_contiguous(torch::MemoryFormat::ChannelsLast));
}

TEST_F(MemoryFormats, ChannelsLastIsRefusedWhereItDoesNothing) {
  options_.channels_last = true;
  torch::nn::Linear net(4, 2);
  EXPECT_THAT(error_of([&] { store_channels_last(*net, "mlp"); }),
              HasSubstr("is for models with two-dimensional convolutions, and 'mlp' has none"));
  options_.optimizer = {"sgd", 0.1, 0.9, 0};
  options_.staleness = 1;
  EXPECT_THAT(error_of([&] { train(options_); }),
              HasSubstr("--staleness cannot be combined with --channels-last"));
}

}  // namespace
}  // namespace ddp::train
