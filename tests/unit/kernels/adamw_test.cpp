// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/kernels/adamw.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/kernels/cpu_grid.h"
#include "tests/unit/kernels/values.h"

namespace ddp::kernels {
namespace {

using test::Array;

constexpr float kLr = 1e-2F;
constexpr float kBeta1 = 0.9F;
constexpr float kBeta2 = 0.999F;
constexpr float kEps = 1e-8F;

// A parameter with its gradient and state, in poisoned memory.
template <class Gradient>
struct Parameter {
  Array<Gradient> gradient;
  Array<F32> parameter;
  Array<F32> average;
  Array<F32> square_average;
  Array<Bf16> weight;
  float weight_decay;

  Parameter(std::size_t count, float decay, std::size_t gradient_offset = 0, std::size_t offset = 0)
      : gradient(count, gradient_offset),
        parameter(count, offset),
        average(count, offset),
        square_average(count, offset),
        weight(count, offset),
        weight_decay(decay) {
    gradient.randomize(1, 3);
    parameter.randomize(2);
    average.randomize(3, 0.1F);
    square_average.randomize(4, 0.1F);
    for (std::size_t i = 0; i < count; ++i) {
      square_average.set(i, std::abs(square_average.get(i)));
      weight.data()[i] = 0xa5a5;
    }
  }
  AdamWPiece piece(bool with_weight) {
    return {gradient.data(),
            parameter.data(),
            average.data(),
            square_average.data(),
            with_weight ? weight.data() : nullptr,
            gradient.size(),
            0,
            weight_decay,
            0};
  }
  bool guards_intact() const {
    return gradient.guards_intact() && parameter.guards_intact() && average.guards_intact() &&
           square_average.guards_intact() && weight.guards_intact();
  }
};

struct Factors {
  float step = 7;
  const float* lr_value = nullptr;
  const float* loss_scale = nullptr;
  const float* clip_factor = nullptr;
  const float* skip = nullptr;
};

template <class Gradient>
void run(std::vector<Parameter<Gradient>*> parameters, const Factors& factors,
         bool with_weight = true, std::uint64_t blocks = 3) {
  std::vector<AdamWPiece> pieces;
  for (auto* parameter : parameters) pieces.push_back(parameter->piece(with_weight));
  AdamWArguments arguments;
  arguments.tiles = number_tiles(std::span(pieces));
  arguments.pieces = pieces.data();
  arguments.count = pieces.size();
  arguments.step = &factors.step;
  arguments.lr_value = factors.lr_value;
  arguments.loss_scale = factors.loss_scale;
  arguments.clip_factor = factors.clip_factor;
  arguments.skip = factors.skip;
  arguments.lr = kLr;
  arguments.beta1 = kBeta1;
  arguments.beta2 = kBeta2;
  arguments.eps = kEps;
  cpu::run_adamw<Gradient>(arguments, blocks);
}

// The textbook's AdamW in double, of what was there before.
struct Exact {
  double parameter, average, square_average;
};
Exact exact_step(double g, double p, double m, double v, double decay, double step,
                 double lr = kLr) {
  const double beta1 = kBeta1;
  const double beta2 = kBeta2;
  p -= lr * decay * p;
  m = beta1 * m + (1 - beta1) * g;
  v = beta2 * v + (1 - beta2) * g * g;
  const double mean = m / (1 - std::pow(beta1, step));
  const double square = v / (1 - std::pow(beta2, step));
  return {p - lr * mean / (std::sqrt(square) + static_cast<double>(kEps)), m, v};
}

template <class Gradient>
void expect_step(Parameter<Gradient>& after, const Parameter<Gradient>& before, double factor,
                 double step, double lr = kLr, bool with_weight = true) {
  for (std::size_t i = 0; i < after.gradient.size(); ++i) {
    const Exact exact =
        exact_step(before.gradient.get(i) * factor, before.parameter.get(i), before.average.get(i),
                   before.square_average.get(i), before.weight_decay, step, lr);
    ASSERT_NEAR(after.average.get(i), exact.average, 3e-7 * (std::abs(exact.average) + 1)) << i;
    ASSERT_NEAR(after.square_average.get(i), exact.square_average,
                3e-7 * (exact.square_average + 0.01))
        << i;
    // 1 - beta2^step loses digits in float for small steps.
    const double change = std::abs(exact.parameter - before.parameter.get(i));
    ASSERT_NEAR(after.parameter.get(i), exact.parameter, 1e-6 + 1e-4 * change) << i;
    const auto weight = with_weight ? Bf16::from_float(after.parameter.get(i)) : 0xa5a5;
    ASSERT_EQ(after.weight.data()[i], weight) << i;
  }
  EXPECT_TRUE(after.guards_intact());
}

template <class T>
class AdamW : public testing::Test {};
using GradientTypes = testing::Types<F32, Bf16>;
TYPED_TEST_SUITE(AdamW, GradientTypes);

TYPED_TEST(AdamW, EqualsTheTextbook) {
  for (const float step : {1.0F, 7.0F, 100000.0F}) {
    const Parameter<TypeParam> before(9001, 0.1F);
    Parameter<TypeParam> after(9001, 0.1F);
    run<TypeParam>({&after}, {.step = step});
    expect_step(after, before, 1, step);
  }
}

TYPED_TEST(AdamW, AnyAlignmentAndLength) {
  for (const std::size_t count : {0, 1, 3, 4, 5, 8, 63, 1025}) {
    for (std::size_t from = 0; from < 5; ++from) {
      for (std::size_t to = 0; to < 5; ++to) {
        const Parameter<TypeParam> before(count, 0.1F, from, to);
        Parameter<TypeParam> after(count, 0.1F, from, to);
        run<TypeParam>({&after}, {});
        expect_step(after, before, 1, 7);
      }
    }
  }
}

TYPED_TEST(AdamW, GroupsAndSingleElementsHaveTheSameBits) {
  Parameter<TypeParam> aligned(777, 0.1F, 0, 0);
  Parameter<TypeParam> not_aligned(777, 0.1F, 1, 2);
  run<TypeParam>({&aligned}, {});
  run<TypeParam>({&not_aligned}, {}, true, 1);
  for (std::size_t i = 0; i < 777; ++i) {
    ASSERT_EQ(aligned.parameter.get(i), not_aligned.parameter.get(i));
    ASSERT_EQ(aligned.square_average.get(i), not_aligned.square_average.get(i));
  }
}

TYPED_TEST(AdamW, DecayOfEachPiece) {
  const Parameter<TypeParam> before_one(50, 0);
  const Parameter<TypeParam> before_two(50, 0.5F);
  Parameter<TypeParam> one(50, 0);
  Parameter<TypeParam> empty(0, 0.5F);
  Parameter<TypeParam> two(50, 0.5F);
  run<TypeParam>({&one, &empty, &two}, {}, false);
  expect_step(one, before_one, 1, 7, kLr, false);
  expect_step(two, before_two, 1, 7, kLr, false);
}

TYPED_TEST(AdamW, FactorsFromTheDevice) {
  const float lr = 0.5F;
  const float scale = 1024;
  const float clip = 0.25F;
  const float no_skip = 0;
  const Parameter<TypeParam> before(300, 0.1F);
  Parameter<TypeParam> after(300, 0.1F);
  run<TypeParam>({&after}, {3, &lr, &scale, &clip, &no_skip});
  expect_step(after, before, 0.25 / 1024, 3, 0.5);
}

TYPED_TEST(AdamW, SkipWritesNothing) {
  for (const float skip : {1.0F, NAN}) {
    Parameter<TypeParam> after(300, 0.1F);
    const Parameter<TypeParam> before(300, 0.1F);
    after.gradient.set(5, NAN);
    run<TypeParam>({&after}, {.skip = &skip});
    for (std::size_t i = 0; i < 300; ++i) {
      ASSERT_EQ(after.parameter.get(i), before.parameter.get(i));
      ASSERT_EQ(after.average.get(i), before.average.get(i));
      ASSERT_EQ(after.weight.data()[i], before.weight.data()[i]);
    }
  }
}

TYPED_TEST(AdamW, ANanStaysInItsElement) {
  const Parameter<TypeParam> before(300, 0.1F);
  Parameter<TypeParam> after(300, 0.1F);
  after.gradient.set(5, NAN);
  run<TypeParam>({&after}, {});
  for (std::size_t i = 0; i < 300; ++i) {
    ASSERT_EQ(std::isnan(after.parameter.get(i)), i == 5);
    ASSERT_EQ(std::isnan(after.weight.get(i)), i == 5);
  }
}

// The roundings of Note [Rounding of ATen], written a second time.
TEST(AdamWRounding, IsThatOfAten) {
  const Parameter<F32> before(2000, 0.1F);
  Parameter<F32> after(2000, 0.1F);
  run<F32>({&after}, {});
  const float correction1 = 1 - powf(kBeta1, 7);
  const float correction2 = sqrtf(1 - powf(kBeta2, 7));
  const volatile float lr_decay = kLr * 0.1F;
  for (std::size_t i = 0; i < 2000; ++i) {
    const float g = before.gradient.get(i);
    float p = before.parameter.get(i);
    p = std::fma(-lr_decay, p, p);
    const float m = std::fma(kBeta1, before.average.get(i), std::fma(-kBeta1, g, g));
    const volatile float gg = g * g;
    const float v = std::fma(kBeta2, before.square_average.get(i), std::fma(-kBeta2, gg, gg));
    const volatile float quotient = std::sqrt(v) / correction2;
    const volatile float denominator = quotient + kEps;
    const volatile float step_size = kLr / correction1;
    const volatile float product = step_size * m;
    const volatile float change = product / denominator;
    ASSERT_EQ(after.average.get(i), m);
    ASSERT_EQ(after.square_average.get(i), v);
    ASSERT_EQ(after.parameter.get(i), p - change);
  }
}

}  // namespace
}  // namespace ddp::kernels
