// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/step/clip_gradients.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/unit/test_device.h"

namespace ddp::train {
namespace {

// Parameters with known gradients; the third has none. `scale` multiplies them.
std::vector<torch::Tensor> parameters(double scale) {
  std::vector<torch::Tensor> all = {torch::zeros({7, 5}), torch::zeros({11}), torch::zeros({3}),
                                    torch::zeros({2, 3, 2})};
  int i = 0;
  for (auto& parameter : all) {
    parameter = test::on_test_device(parameter).requires_grad_();
    if (++i == 3) continue;
    const auto values = torch::arange(parameter.numel(), torch::kFloat32) + i;
    const auto gradient = (values.sin() * scale).view(parameter.sizes());
    parameter.mutable_grad() = test::on_test_device(gradient);
  }
  return all;
}

void expect_the_bits_of_libtorch(std::vector<torch::Tensor> ours, std::vector<torch::Tensor> theirs,
                                 double max_norm) {
  clip_gradients(ours, max_norm);
  torch::nn::utils::clip_grad_norm_(theirs, max_norm);
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].grad().defined(), theirs[i].grad().defined());
    if (!ours[i].grad().defined()) continue;
    const auto a = ours[i].grad().cpu();
    const auto b = theirs[i].grad().cpu();
    EXPECT_EQ(std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()), 0) << "parameter " << i;
  }
}

TEST(ClipGradients, EndsWithTheBitsOfLibtorch) {
  for (const double scale : {1e-4, 0.3, 1.0, 1e6}) {
    expect_the_bits_of_libtorch(parameters(scale), parameters(scale), 0.5);
  }
  const auto one = [] { return std::vector{parameters(1).front()}; };
  expect_the_bits_of_libtorch(one(), one(), 0.5);
}

TEST(ClipGradients, LeavesSmallGradientsAsTheyAre) {
  const auto before = parameters(1e-3);
  const auto after = parameters(1e-3);
  clip_gradients(after, 100);
  EXPECT_TRUE(torch::equal(before[0].grad(), after[0].grad()));
}

TEST(ClipGradients, SpreadsWhatIsNotFinite) {
  auto all = parameters(1);
  all[1].mutable_grad()[2] = std::numeric_limits<float>::quiet_NaN();
  clip_gradients(all, 1);
  EXPECT_TRUE(all[0].grad().isnan().all().item<bool>());
}

// In bfloat16 itself, the norm of many values would stop growing.
TEST(ClipGradients, NormsOfBfloat16AreComputedInFloat32) {
  auto full = test::on_test_device(torch::zeros({4})).requires_grad_();
  auto brief = test::on_test_device(torch::zeros({100000}, torch::kBFloat16)).requires_grad_();
  full.mutable_grad() = torch::full_like(full, 3).detach();
  brief.mutable_grad() = torch::full_like(brief, 0.01).detach();
  const double value = brief.grad()[0].item<float>();
  const double norm = std::sqrt(4 * 9 + 100000 * value * value);
  clip_gradients({full, brief}, 1);
  EXPECT_NEAR(full.grad()[0].item<float>(), 3 / norm, 1e-4);
  EXPECT_NEAR(brief.grad()[0].item<float>(), value / norm, 1e-5);
}

TEST(ClipGradients, ShortTypesMayBeAlone) {
  auto brief = test::on_test_device(torch::zeros({4}, torch::kBFloat16)).requires_grad_();
  brief.mutable_grad() = torch::full_like(brief, 2).detach();
  clip_gradients({brief}, 1);
  EXPECT_EQ(brief.grad()[0].item<float>(), 0.5F);
}

TEST(ClipGradients, WithoutGradientsDoesNothing) {
  clip_gradients({test::on_test_device(torch::zeros({3}))}, 1);
}

}  // namespace
}  // namespace ddp::train
