// SPDX-License-Identifier: Apache-2.0
// Models whose weights are not in the order of their dimensions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "base/errors.h"
#include "ddp_runtime/data/tensor_dataset.h"
#include "ddp_runtime/train/channels_last.h"
#include "ddp_runtime/train/trainer.h"
#include "tests/unit/error_of.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/test_device.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;

data::DataPair images() {
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(7);
  const auto inputs = torch::randn({32, 3, 6, 6}, generator);
  const auto targets = inputs.mean({1, 2, 3}).gt(0).to(torch::kInt64);
  const auto data = std::make_shared<data::TensorDataset>(inputs, targets, 2);
  return {"images", data, data};
}

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
    RunResult result;
    std::mutex mutex;
    test::run_ranks(2, [&](comm::Group& group) {
      auto net = network();
      if (own_format) store_channels_last(*net, "net");
      test::move_to_test_device(*net);
      Trainer trainer(group,
                      {"test", "test", "net", *net,
                       [&](const torch::Tensor& x) {
                         const std::lock_guard lock(mutex);
                         inputs_last_ = x.is_contiguous(torch::MemoryFormat::ChannelsLast);
                         return net->forward(x);
                       },
                       images()},
                      options);
      const auto mine = trainer.fit();
      if (group.rank() != 0) return;
      result = mine;
      weights_last_ = net->parameters()[0].is_contiguous(torch::MemoryFormat::ChannelsLast);
      parameters_.clear();
      for (const auto& p : test::on_cpu(net->parameters())) parameters_.push_back(p.contiguous());
    });
    return result;
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
