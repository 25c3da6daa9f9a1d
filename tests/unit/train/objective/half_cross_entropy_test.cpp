// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/objective/half_cross_entropy.h"

#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ddp_runtime/amp/autocast.h"
#include "ddp_runtime/torch_compat.h"
#include "ddp_runtime/train/objective/objective.h"
#include "tests/unit/error_of.h"
#include "tests/unit/test_device.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::string name;
  torch::Tensor scores;  // [n, classes], float64
  std::vector<std::int64_t> targets;
  double incoming = 1;  // the derivative by the loss
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.name;
}

torch::Tensor random_scores(std::int64_t rows, std::int64_t classes, double spread) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  return torch::randn({rows, classes}, generator, torch::kFloat64) * spread;
}

// All rows like `row`.
torch::Tensor rows_like(const std::vector<double>& row, std::int64_t rows) {
  return torch::tensor(row, torch::kFloat64).repeat({rows, 1});
}

std::vector<Case> cases() {
  return {
      {"random", random_scores(9, 1000, 3), {0, 999, 5, 17, 400, 3, 3, 998, 1}},
      {"flat", torch::zeros({2, 333}, torch::kFloat64), {0, 200}},
      {"sure_and_right", rows_like({20, 10, 9, 0}, 2), {0, 0}},
      {"almost_certain", rows_like({14, 0, 1, -1}, 1), {0}},
      {"sure_and_wrong", rows_like({20, 10, 9, 0}, 3), {1, 2, 3}},
      {"two_peaks", rows_like({5, 5, -3}, 3), {0, 1, 2}},
      {"large", rows_like({1e4, -1e4, 0, 9984}, 4), {0, 1, 2, 3}},
      {"masked_class", rows_like({1, -kInfinity, 2, 3}, 3), {0, 2, 3}},
      {"one_class", random_scores(3, 1, 1), {0, 0, 0}},
      {"ignored", random_scores(6, 50, 2), {-100, 3, -100, 49, 0, -100}},
      {"scaled_loss", random_scores(4, 30, 2), {1, 2, -100, 4}, 1024},
  };
}

torch::Tensor int64s(const std::vector<std::int64_t>& values) {
  return torch::tensor(values, torch::kInt64);
}

// The loss of each target in float64; 0 for ignored ones.
torch::Tensor exact_losses(const torch::Tensor& scores, const torch::Tensor& targets) {
  return torch::nll_loss(scores.log_softmax(1), targets, {}, at::Reduction::None);
}

class HalfCrossEntropy : public testing::TestWithParam<std::tuple<torch::ScalarType, Case>> {
 protected:
  torch::ScalarType type() const { return std::get<0>(GetParam()); }
  const Case& example() const { return std::get<1>(GetParam()); }
  // Of two roundings to nearest.
  double error() const { return type() == torch::kBFloat16 ? 0x1p-7 : 0x1p-10; }
  // The smallest fp16 number; bf16 has the range of float32.
  double step() const { return type() == torch::kBFloat16 ? 1e-37 : 0x1p-24; }

  torch::Tensor scores() const { return example().scores.to(type()); }
  torch::Tensor targets() const { return int64s(example().targets); }
};

TEST_P(HalfCrossEntropy, LossesAreThoseOfFloat64) {
  const auto exact_scores = scores().to(torch::kFloat64);
  const auto expected = exact_losses(exact_scores, targets());
  const auto losses =
      half_cross_entropies(test::on_test_device(scores()), test::on_test_device(targets())).cpu();
  EXPECT_EQ(losses.scalar_type(), torch::kFloat32);
  const auto largest = std::get<0>(exact_scores.softmax(1).max(1));
  const auto classes = static_cast<double>(exact_scores.size(1));
  const auto bound = (1 - largest) * (error() + step() * classes) + expected.abs() * 1e-6 + 1e-7;
  EXPECT_TRUE((losses - expected).abs().le(bound).all().item<bool>()) << losses << expected;
}

TEST_P(HalfCrossEntropy, MeanAndDerivativesAreThoseOfFloat64) {
  auto exact_scores = scores().to(torch::kFloat64).requires_grad_();
  const auto exact = torch::nll_loss(exact_scores.log_softmax(1), targets());
  exact.backward(torch::tensor(example().incoming, torch::kFloat64));
  auto leaf = test::on_test_device(scores()).requires_grad_();
  const auto loss = half_cross_entropy(leaf, test::on_test_device(targets()));
  loss.backward(test::on_test_device(torch::tensor(static_cast<float>(example().incoming))));
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  EXPECT_EQ(loss.dim(), 0);
  const auto mean = exact.item<double>();
  EXPECT_NEAR(loss.item<double>(), mean, std::abs(mean) * error() + 1e-7);
  EXPECT_EQ(leaf.grad().scalar_type(), type());
  const auto expected = exact_scores.grad();
  const auto gradient = leaf.grad().cpu().to(torch::kFloat64);
  // The sum of a row's probabilities may add as many errors as there are classes.
  const auto smallest = step() * (1 + example().incoming) * static_cast<double>(leaf.size(1));
  const auto bound = expected.abs() * error() + smallest;
  EXPECT_TRUE((gradient - expected).abs().le(bound).all().item<bool>())
      << "error / bound: " << ((gradient - expected).abs() / bound).max().item<double>();
}

// libtorch 1.13 does not have an fp16 softmax for CPUs.
std::vector<torch::ScalarType> types() {
  if (SLURM_DDP_TORCH_2) return {torch::kBFloat16, torch::kHalf};
  return {torch::kBFloat16};
}

INSTANTIATE_TEST_SUITE_P(Types, HalfCrossEntropy,
                         testing::Combine(testing::ValuesIn(types()), testing::ValuesIn(cases())),
                         [](const auto& of) {
                           const bool bf16 = std::get<0>(of.param) == torch::kBFloat16;
                           return (bf16 ? "bf16_" : "fp16_") + std::get<1>(of.param).name;
                         });

struct Small {
  torch::Tensor scores = test::on_test_device(random_scores(4, 30, 2).to(torch::kBFloat16));
  torch::Tensor targets = test::on_test_device(int64s({1, 2, -100, 4}));
};

TEST(HalfCrossEntropyMean, IsNotANumberOfIgnoredTargetsOnlyButHasDerivatives) {
  auto scores = Small().scores.requires_grad_();
  const auto loss =
      half_cross_entropy(scores, test::on_test_device(int64s({-100, -100, -100, -100})));
  loss.backward();
  EXPECT_TRUE(std::isnan(loss.item<float>()));
  EXPECT_TRUE(scores.grad().eq(0).all().item<bool>());
}

TEST(HalfCrossEntropyMean, IgnoresTheLossOfAnIgnoredTargetThatIsNotANumber) {
  auto small = Small();
  const auto before = half_cross_entropy(small.scores, small.targets);
  small.scores[2].fill_(kInfinity);
  EXPECT_EQ(half_cross_entropy(small.scores, small.targets).item<float>(), before.item<float>());
}

TEST(HalfCrossEntropyMean, IsInfiniteIfTheTargetIsMasked) {
  auto small = Small();
  small.scores[0][1].fill_(-kInfinity);
  EXPECT_EQ(half_cross_entropy(small.scores, small.targets).item<double>(), kInfinity);
}

TEST(HalfCrossEntropyMean, HasTheSameDerivativesInASecondBackward) {
  auto small = Small();
  small.scores.requires_grad_();
  const auto loss = half_cross_entropy(small.scores, small.targets);
  loss.backward({}, /*retain_graph=*/true);
  const auto first = small.scores.grad().clone();
  small.scores.mutable_grad().reset();
  loss.backward();
  EXPECT_TRUE(small.scores.grad().equal(first));
  EXPECT_THAT(error_of([&] { loss.backward(); }), HasSubstr("second time"));
}

TEST(HalfCrossEntropyMean, RefusesSecondDerivatives) {
  auto small = Small();
  small.scores.requires_grad_();
  const auto loss = half_cross_entropy(small.scores, small.targets);
  EXPECT_THAT(error_of([&] {
                torch::autograd::grad({loss}, {small.scores}, {}, true, /*create_graph=*/true);
              }),
              HasSubstr("no second derivatives"));
}

TEST(HalfCrossEntropyMean, IsTheSameWithoutAGraph) {
  auto small = Small();
  small.scores.requires_grad_();
  const auto with = half_cross_entropy(small.scores, small.targets);
  const torch::NoGradGuard no_grad;
  const auto without = half_cross_entropy(small.scores, small.targets);
  EXPECT_TRUE(with.requires_grad());
  EXPECT_FALSE(without.requires_grad());
  EXPECT_TRUE(with.equal(without));
}

// How often `run` calls the operator, on this thread.
int calls_of(std::string_view wanted, const std::function<void()>& run) {
  static thread_local std::string_view name;
  static thread_local int calls;
  name = wanted;
  calls = 0;
  const auto count = [](const at::RecordFunction& op) -> std::unique_ptr<at::ObserverContext> {
    if (name == op.name()) ++calls;
    return nullptr;
  };
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(count).scopes({at::RecordScope::FUNCTION}));
  run();
  at::removeCallback(handle);
  return calls;
}

// One call takes the largest probability out of the sum of the others, two make the derivatives.
TEST(HalfCrossEntropyMean, ComputesDerivativesOnlyForAGraph) {
  auto small = Small();
  const auto mean = [&] { half_cross_entropy(small.scores, small.targets); };
  EXPECT_EQ(calls_of("aten::scatter_", mean), 1);
  small.scores.requires_grad_();
  EXPECT_EQ(calls_of("aten::scatter_", mean), 3);
  const torch::NoGradGuard no_grad;
  EXPECT_EQ(calls_of("aten::scatter_", mean), 1);
}

TEST(HalfCrossEntropyMean, LeavesTheScoresAlone) {
  auto small = Small();
  const auto before = small.scores.clone();
  half_cross_entropy(small.scores.requires_grad_(), small.targets).backward();
  EXPECT_TRUE(small.scores.equal(before));
}

// Autocast would make float32 of the scores.
TEST(HalfCrossEntropyMean, IsTheSameUnderAutocast) {
  auto small = Small();
  const auto outside = half_cross_entropy(small.scores, small.targets);
  const amp::AutocastGuard autocast(test::test_device().type(), amp::Precision::bf16);
  EXPECT_TRUE(half_cross_entropy(small.scores, small.targets).equal(outside));
}

TEST(HalfCrossEntropyMean, RefusesAnotherNumberOfTargets) {
  const auto scores = Small().scores;
  EXPECT_THAT(error_of([&] {
                half_cross_entropy(scores, test::on_test_device(int64s({1, 2, 3})));
              }),
              HasSubstr("[4, 30] and [3]"));
}

TEST(HalfCrossEntropyMean, IsTheLossOfManyScoresOnADevice) {
  const auto many = [](torch::ScalarType type) {
    return test::on_test_device(torch::zeros({1 << 10, 1 << 14}, type));
  };
  EXPECT_EQ(has_cheap_cross_entropy(many(torch::kBFloat16)), !test::test_device().is_cpu());
  EXPECT_FALSE(has_cheap_cross_entropy(many(torch::kHalf)));  // its loss is scaled
  EXPECT_FALSE(has_cheap_cross_entropy(many(torch::kFloat32)));
  EXPECT_FALSE(has_cheap_cross_entropy(Small().scores));
}

TEST(HalfCrossEntropyMean, TakesScoresOfTexts) {
  const auto scores =
      test::on_test_device(torch::zeros({2, 1 << 9, 1 << 14}, torch::kBFloat16).requires_grad_());
  const auto targets = test::on_test_device(torch::zeros({2, 1 << 9}, torch::kInt64));
  const auto loss = mean_cross_entropy(scores, targets);
  const std::string node = loss.grad_fn()->name();
  EXPECT_EQ(node.find("HalfCrossEntropy") != std::string::npos, !test::test_device().is_cpu());
  EXPECT_NEAR(loss.item<double>(), std::log(1 << 14), 1e-4);
}

}  // namespace
}  // namespace ddp::train
