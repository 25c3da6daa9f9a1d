// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/amp/autocast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "base/errors.h"
#include "ddp_runtime/torch_compat.h"
#include "tests/unit/error_of.h"
#include "tests/unit/test_device.h"

namespace ddp::amp {
namespace {

torch::ScalarType product_type() {
  const auto ones = test::on_test_device(torch::ones({2, 2}));
  return torch::mm(ones, ones).scalar_type();
}

TEST(AutocastGuard, LowersPrecisionOnlyWithinItsScope) {
  EXPECT_EQ(product_type(), torch::kFloat32);
  {
    const AutocastGuard guard(test::test_device().type(), Precision::bf16);
    EXPECT_EQ(product_type(), torch::kBFloat16);
    {
      const AutocastGuard off(test::test_device().type(), Precision::fp32);
      EXPECT_EQ(product_type(), torch::kFloat32);
    }
    EXPECT_EQ(product_type(), torch::kBFloat16);
  }
  EXPECT_EQ(product_type(), torch::kFloat32);
}

TEST(AutocastGuard, RestoresAutocastAfterAnException) {
  try {
    const AutocastGuard guard(test::test_device().type(), Precision::bf16);
    throw std::runtime_error("in forward");
  } catch (const std::runtime_error&) {
    EXPECT_EQ(product_type(), torch::kFloat32);
  }
}

TEST(AutocastGuard, ParametersAndGradientsStayFloat32) {
  auto layer = test::on_test_device(torch::nn::Linear(4, 4));
  const auto input = test::on_test_device(torch::ones({2, 4}));
  torch::Tensor output;
  {
    const AutocastGuard guard(test::test_device().type(), Precision::bf16);
    output = layer(input);
  }
  EXPECT_EQ(output.scalar_type(), torch::kBFloat16);
  output.to(torch::kFloat32).sum().backward();
  EXPECT_EQ(layer->weight.grad().scalar_type(), torch::kFloat32);
}

// A stale cached cast of a parameter would make training compute with old values.
TEST(AutocastGuard, DropsCachedCastsAtItsEnd) {
  auto layer = test::on_test_device(torch::nn::Linear(1, 1));
  const auto forward = [&] {
    const AutocastGuard guard(test::test_device().type(), Precision::bf16);
    return layer(test::on_test_device(torch::ones({1, 1}))).to(torch::kFloat32).item<float>();
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

// A cast of a parameter that the outer scope has made is used again after an inner scope.
TEST(AutocastGuard, KeepsCachedCastsUntilTheOutermostEnds) {
  const auto device = test::test_device().type();
  const auto weight = test::on_test_device(torch::ones({2, 2})).requires_grad_();
  const auto cast = [&] { return at::autocast::cached_cast(torch::kBFloat16, weight, device); };
  const AutocastGuard outer(device, Precision::bf16);
  const auto first = cast();
  EXPECT_TRUE(cast().is_same(first));
  {
    const AutocastGuard inner(device, Precision::bf16);
    EXPECT_TRUE(cast().is_same(first));
  }
  EXPECT_TRUE(cast().is_same(first));
}

#if SLURM_DDP_TORCH_2_4

TEST(AutocastGuard, RestoresThePrecisionOfTheOuterScope) {
  const auto device = test::test_device().type();
  const auto before = torch_compat::autocast_type(device);
  {
    const AutocastGuard outer(device, Precision::bf16);
    {
      const AutocastGuard inner(device, Precision::fp16);
      EXPECT_EQ(torch_compat::autocast_type(device), torch::kHalf);
    }
    EXPECT_EQ(torch_compat::autocast_type(device), torch::kBFloat16);
    EXPECT_TRUE(torch_compat::autocast_enabled(device));
  }
  EXPECT_EQ(torch_compat::autocast_type(device), before);
  EXPECT_FALSE(torch_compat::autocast_enabled(device));
}

#endif

// No libtorch that the tests run with can compute on such a device.
TEST(RequirePrecision, NamesAPrecisionThatIsSupported) {
  require_precision(torch::kXLA, Precision::fp32);
  EXPECT_THAT(error_of([] { require_precision(torch::kXLA, Precision::fp16); }),
              testing::MatchesRegex("fp16 arithmetic is not supported on this device by libtorch "
                                    ".*; use --precision bf16"));
  EXPECT_THAT(error_of([] { require_precision(torch::kXLA, Precision::bf16); }),
              testing::MatchesRegex("bf16 arithmetic is not supported on this device by libtorch "
                                    ".*; use --precision fp32"));
}

TEST(RequirePrecision, QueriesTheLibrary) {
  require_precision(test::test_device().type(), Precision::fp32);
  require_precision(test::test_device().type(), Precision::bf16);
  bool multiplies = true;
  try {
    const auto one = test::on_test_device(torch::ones({1, 1}, torch::kHalf));
    torch::mm(one, one);
  } catch (const c10::Error&) {
    multiplies = false;
  }
  if (multiplies) {
    require_precision(test::test_device().type(), Precision::fp16);
  } else {
    EXPECT_THROW(require_precision(test::test_device().type(), Precision::fp16), UsageError);
  }
}

TEST(ParsePrecision, ListsValidChoices) {
  EXPECT_EQ(parse_precision("fp32"), Precision::fp32);
  EXPECT_EQ(parse_precision("bf16"), Precision::bf16);
  EXPECT_EQ(parse_precision("fp16"), Precision::fp16);
  EXPECT_THROW(parse_precision("fp8"), UsageError);
}

}  // namespace
}  // namespace ddp::amp
