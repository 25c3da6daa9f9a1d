// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/tensor_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/unit/error_of.h"

namespace ddp::data {
namespace {

using testing::HasSubstr;

std::string refused(const torch::Tensor& inputs, const torch::Tensor& targets,
                    std::int64_t classes = 3) {
  return error_of([&] { TensorDataset(inputs, targets, classes); });
}

// The constructor must report errors, because a loader thread would report them hours later.
TEST(TensorDataset, ReportsInvalidTensors) {
  const auto inputs = torch::zeros({4, 2});
  const auto targets = torch::arange(4) % 3;
  EXPECT_EQ(refused(inputs, targets), "");
  EXPECT_THAT(refused(inputs.to(torch::kFloat64), targets),
              HasSubstr("Double; convert them with .to(torch::kFloat32)"));
  EXPECT_THAT(refused(inputs.to(torch::kUInt8), targets), HasSubstr("not Byte"));
  EXPECT_THAT(refused(inputs, targets.to(torch::kFloat32)), HasSubstr("class numbers"));
  EXPECT_THAT(refused(inputs, torch::zeros({3}, torch::kInt64)),
              HasSubstr("4 samples needs as many targets, not 3"));
  EXPECT_THAT(refused(inputs, torch::tensor({0, 1, 3, 0})), HasSubstr("has the target 3"));
  EXPECT_THAT(refused(inputs, torch::tensor({0, 1, -1, 0})), HasSubstr("has the target -1"));
  EXPECT_THAT(refused(torch::zeros({0, 2}), torch::zeros({0}, torch::kInt64)),
              HasSubstr("at least one sample"));
  EXPECT_EQ(refused(inputs, torch::tensor({0, 1, -100, 0})), "") << "the loss ignores -100";
  EXPECT_EQ(refused(inputs, torch::tensor({7, 8, 9, -7}), 0), "")
      << "without classes, any number is valid";
  EXPECT_EQ(refused(inputs, inputs, 0), "") << "targets of an autoencoder";
}

TEST(TensorDataset, SupportsTargetsOfAnyIntegerTypeAndShape) {
  const std::array<std::int64_t, 2> indices{2, 0};
  for (const auto type : {torch::kInt32, torch::kUInt8, torch::kInt64}) {
    const TensorDataset data(torch::arange(6, torch::kFloat32).view({3, 2}),
                             torch::tensor({5, 6, 7}).to(type), 8);
    const auto [inputs, targets, more] = data.get(indices);
    EXPECT_TRUE(torch::equal(targets, torch::tensor({7, 5})));
    EXPECT_TRUE(torch::equal(inputs, torch::tensor({{4.F, 5.F}, {0.F, 1.F}})));
    EXPECT_FALSE(data.shape().tokens);
  }
  const auto values = torch::arange(6, torch::kFloat32).view({3, 2});
  EXPECT_TRUE(torch::equal(TensorDataset(values, values, 0).get(indices).targets,
                           torch::tensor({{4.F, 5.F}, {0.F, 1.F}})));
  const auto numbers = torch::arange(12).view({3, 4});
  const TensorDataset text(numbers, numbers + 1, 13);
  const auto [inputs, targets, more] = text.get(indices);
  EXPECT_TRUE(torch::equal(inputs, torch::stack({numbers[2], numbers[0]})));
  EXPECT_TRUE(torch::equal(targets, inputs + 1));
  EXPECT_TRUE(text.shape().tokens);
}

}  // namespace
}  // namespace ddp::data
