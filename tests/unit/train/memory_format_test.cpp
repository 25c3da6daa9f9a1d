// SPDX-License-Identifier: Apache-2.0
// Models whose weights are not in the order of their dimensions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "base/errors.h"
#include "ddp_runtime/data/tensor_dataset.h"
#include "ddp_runtime/train/trainer.h"
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
  torch::nn::Sequential net(
      torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 4, 3).padding(1)), torch::nn::ReLU(),
      torch::nn::Conv2d(4, 5, 3), torch::nn::Flatten(), torch::nn::Linear(80, 2));
  const torch::NoGradGuard no_grad;
  auto generator = torch::make_generator<torch::CPUGeneratorImpl>(8);
  for (auto& p : net->parameters()) p.copy_(torch::randn(p.sizes(), generator) * 0.1);
  return net;
}

void store_channels_last(torch::nn::Module& module) {
  for (auto& p : module.parameters()) {
    if (p.dim() == 4) p.set_data(p.detach().contiguous(torch::MemoryFormat::ChannelsLast));
  }
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
      if (own_format) store_channels_last(*net);
      test::move_to_test_device(*net);
      Trainer trainer(
          group,
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

}  // namespace
}  // namespace ddp::train
