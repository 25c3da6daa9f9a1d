#include "ddp_runtime/train/evaluation.h"

#include <gtest/gtest.h>

#include "ddp_runtime/comm/in_process/run_ranks.h"
#include "ddp_runtime/data/tensor_dataset.h"

namespace ddp::train {
namespace {

// The scores are the inputs, so that loss and accuracy are known: samples 0 to 6, class i % 3; the
// first four are scored right with a margin of ln 2 ... and the others wrong.
TEST(Evaluate, IsTheMeanOverAllSamplesForAnyNumberOfRanks) {
  const std::int64_t n = 7;
  auto inputs = torch::zeros({n, 3});
  auto targets = torch::zeros({n}, torch::kInt64);
  for (std::int64_t i = 0; i < n; ++i) {
    targets[i] = i % 3;
    inputs[i][i < 4 ? i % 3 : (i + 1) % 3] = 2.0;
  }
  const auto right = -2.0 + std::log(std::exp(2.0) + 2);
  const auto wrong = std::log(std::exp(2.0) + 2);
  const data::TensorDataset data(inputs, targets, 3);
  for (const int ranks : {1, 2, 3}) {
    comm::run_ranks(ranks, [&](comm::Group& group) {
      torch::nn::Linear unused(1, 1);
      const auto result = evaluate(
          group, *unused, [](const torch::Tensor& x) { return x; }, data, n, 2,
          amp::Precision::fp32);
      EXPECT_EQ(result.targets, n);
      EXPECT_DOUBLE_EQ(result.accuracy, 4.0 / 7);
      EXPECT_NEAR(result.loss, (4 * right + 3 * wrong) / 7, 1e-6);
      EXPECT_TRUE(unused->is_training()) << "evaluation leaves the module in training mode";
    });
  }
}

}  // namespace
}  // namespace ddp::train
