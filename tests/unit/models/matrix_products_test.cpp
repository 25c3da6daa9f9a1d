// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/models/matrix_products.h"

#include <gtest/gtest.h>

#include <vector>

namespace ddp::models {
namespace {

// Small integers, so that sums in any order have the same bits.
torch::Tensor integers(at::IntArrayRef sizes) {
  return torch::randint(-4, 5, sizes, torch::kFloat32).requires_grad_(true);
}

std::vector<torch::Tensor> with_gradients(const torch::Tensor& result,
                                          const std::vector<torch::Tensor>& inputs) {
  const auto weights = torch::arange(result.numel(), torch::kFloat32).remainder(7);
  auto all = torch::autograd::grad({(result.flatten() * weights).sum()}, inputs);
  all.push_back(result.detach());
  return all;
}

TEST(MatrixProducts, ThroughALayerAreItsOwn) {
  torch::nn::Linear layer(5, 3);
  const auto x = torch::randn({2, 4, 5}).requires_grad_(true);
  EXPECT_TRUE(torch::allclose(through(layer, x), layer(x)));
}

TEST(MatrixProducts, HaveTheSameScoresAndGradientsWithPadding) {
  for (const std::int64_t classes : {1, 63, 64, 65, 127}) {
    const auto x = integers({2, 3, 5});
    const auto weight = integers({classes, 5});
    const auto scores = scores_of(x, weight, true);
    ASSERT_EQ(scores.sizes(), (std::vector<std::int64_t>{2, 3, classes}));
    EXPECT_EQ(scores.stride(1) % kRowMultiple, 0) << classes;
    const auto padded = with_gradients(scores, {x, weight});
    const auto expected = with_gradients(scores_of(x, weight, false), {x, weight});
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(torch::equal(padded[i], expected[i])) << classes << " classes, tensor " << i;
    }
  }
}

}  // namespace
}  // namespace ddp::models
