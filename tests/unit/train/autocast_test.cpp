// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/amp/autocast.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "base/errors.h"

namespace ddp::amp {
namespace {

torch::ScalarType product_type() {
  return torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

TEST(AutocastGuard, LowersPrecisionOnlyWithinItsScope) {
  EXPECT_EQ(product_type(), torch::kFloat32);
  {
    const AutocastGuard guard(torch::kCPU, Precision::bf16);
    EXPECT_EQ(product_type(), torch::kBFloat16);
    {
      const AutocastGuard off(torch::kCPU, Precision::fp32);
      EXPECT_EQ(product_type(), torch::kFloat32);
    }
    EXPECT_EQ(product_type(), torch::kBFloat16);
  }
  EXPECT_EQ(product_type(), torch::kFloat32);
}

TEST(AutocastGuard, RestoresAutocastAfterAnException) {
  try {
    const AutocastGuard guard(torch::kCPU, Precision::bf16);
    throw std::runtime_error("in forward");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(product_type(), torch::kFloat32);
  }
}

TEST(AutocastGuard, ParametersAndGradientsStayFloat32) {
  torch::nn::Linear layer(4, 4);
  const auto input = torch::ones({2, 4});
  torch::Tensor output;
  {
    const AutocastGuard guard(torch::kCPU, Precision::bf16);
    output = layer(input);
  }
  EXPECT_EQ(output.scalar_type(), torch::kBFloat16);
  output.to(torch::kFloat32).sum().backward();
  EXPECT_EQ(layer->weight.grad().scalar_type(), torch::kFloat32);
}

// A stale cached cast of a parameter would make training compute with old values.
TEST(AutocastGuard, DropsCachedCastsAtItsEnd) {
  torch::nn::Linear layer(1, 1);
  const auto forward = [&] {
    const AutocastGuard guard(torch::kCPU, Precision::bf16);
    return layer(torch::ones({1, 1})).to(torch::kFloat32).item<float>();
  };
  {
    const torch::NoGradGuard no_grad;
    layer->bias.zero_();
    layer->weight.fill_(1);
  }
  EXPECT_EQ(forward(), 1);
  {
    const torch::NoGradGuard no_grad;
    layer->weight.fill_(3);
  }
  EXPECT_EQ(forward(), 3);
}

TEST(RequirePrecision, QueriesTheLibrary) {
  require_precision(torch::kCPU, Precision::fp32);
  require_precision(torch::kCPU, Precision::bf16);
  bool multiplies = true;
  try {
    torch::mm(torch::ones({1, 1}, torch::kHalf), torch::ones({1, 1}, torch::kHalf));
  } catch (const c10::Error&) {
    multiplies = false;
  }
  if (multiplies) {
    require_precision(torch::kCPU, Precision::fp16);
  } else {
    EXPECT_THROW(require_precision(torch::kCPU, Precision::fp16), UsageError);
  }
}

TEST(ParsePrecision, ListsValidChoices) {
  EXPECT_EQ(parse_precision("bf16"), Precision::bf16);
  EXPECT_EQ(parse_precision("fp16"), Precision::fp16);
  EXPECT_THROW(parse_precision("fp8"), UsageError);
}

}  // namespace
}  // namespace ddp::amp
