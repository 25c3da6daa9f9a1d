// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/update_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "ddp_runtime/optim/update_rules_sets.h"

namespace ddp::optim {
namespace {

using Floats = std::vector<float>;

// All rules that this CPU can run, of each instruction set.
std::vector<UpdateRules> all_rules() {
  std::vector<const UpdateRules*> sets{baseline_rules()};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) sets.push_back(avx2_rules());
#endif
  std::vector<UpdateRules> result;
  for (const auto* set : sets) result.insert(result.end(), set, set + kRoundings);
  return result;
}

// Returns sum + a * b. The volatile product keeps the compiler of this test from fusing them.
float add_product(bool fused, float sum, float a, float b) {
  if (fused) return std::fma(a, b, sum);
  const volatile float product = a * b;
  return sum + product;
}

// Some values of every magnitude and sign.
Floats values(std::size_t count, unsigned seed) {
  Floats result(count);
  for (std::size_t i = 0; i < count; ++i) {
    seed = seed * 1664525U + 1013904223U;
    const float unit = static_cast<float>(seed >> 8U) / static_cast<float>(1U << 24U) - 0.5F;
    result[i] = std::ldexp(unit, static_cast<int>(seed % 13U) - 6);
  }
  return result;
}

void expect_same_bits(const Floats& a, const Floats& b, const char* name) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(a[i]), std::bit_cast<std::uint32_t>(b[i]))
        << name << "[" << i << "] of " << a.size() << ": " << a[i] << " and " << b[i];
  }
}

constexpr std::size_t kBefore = 3;  // not updated, so that the arrays are not aligned to vectors
constexpr std::size_t kAfter = 5;   // not updated

// The nearest of the two bfloat16 around a float, found by comparing distances.
Bf16Bits nearest(float value) {
  if (std::isnan(value)) return 0x7fc0;
  const auto below = std::bit_cast<std::uint32_t>(value) & 0xffff0000U;
  const auto above = below + 0x10000U;
  if (std::isinf(value)) return static_cast<Bf16Bits>(below >> 16);
  // Beyond the largest number comes the power of two that infinity stands for.
  const auto magnitude = [](std::uint32_t bits) {
    const float f = std::bit_cast<float>(bits);
    return std::isinf(f) ? std::copysign(0x1p128, f) : static_cast<double>(f);
  };
  const double to_below = std::abs(value - magnitude(below));
  const double to_above = std::abs(value - magnitude(above));
  const bool below_is_even = (below & 0x10000U) == 0;
  const bool takes_below = to_below < to_above || (to_below == to_above && below_is_even);
  return static_cast<Bf16Bits>((takes_below ? below : above) >> 16);
}

TEST(UpdateRules, ConvertBfloat16OfAllKinds) {
  std::vector<Bf16Bits> all(1U << 16U);
  Floats around;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<Bf16Bits>(i);
    for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      around.push_back(std::bit_cast<float>(i << 16U | low));
    }
  }
  for (const UpdateRules& rules : all_rules()) {
    Floats wide(all.size());
    rules.widen(all.data(), wide.data(), all.size());
    std::vector<Bf16Bits> rounded(around.size());
    rules.round(around.data(), rounded.data(), around.size());
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), i << 16U) << rules.instructions;
    }
    for (std::size_t i = 0; i < around.size(); ++i) {
      ASSERT_EQ(rounded[i], nearest(around[i])) << rules.instructions << ", " << around[i];
    }
  }
}

TEST(UpdateRules, SgdRoundsEachElementAsDocumented) {
  for (const UpdateRules& rules : all_rules()) {
    const bool fused = rules.rounding != Rounding::separate;
    for (std::size_t count = 0; count <= 70; ++count) {
      for (unsigned bits = 0; bits < 16; ++bits) {
        const SgdUpdate u{.minus_lr = -0.03F,
                          .momentum = 0.9F,
                          .gradient_share = 0.7F,
                          .weight_decay = 0.01F,
                          .decays = (bits & 1U) != 0,
                          .has_momentum = (bits & 2U) != 0,
                          .nesterov = (bits & 4U) != 0,
                          .first = (bits & 8U) != 0};
        const std::size_t all = kBefore + count + kAfter;
        auto p = values(all, 1);
        const auto g = values(all, 2);
        auto m = values(all, 3);
        auto expected_p = p;
        auto expected_m = m;
        for (std::size_t i = kBefore; i < kBefore + count; ++i) {
          float d = g[i];
          if (u.decays) d = add_product(fused, d, p[i], 0.01F);
          if (u.has_momentum) {
            const float later = add_product(fused, m[i] * 0.9F, d, 0.7F);
            expected_m[i] = u.first ? d : later;
            d = u.nesterov ? add_product(fused, d, expected_m[i], 0.9F) : expected_m[i];
          }
          expected_p[i] = add_product(fused, p[i], d, -0.03F);
        }
        rules.sgd(u, {p.data() + kBefore, g.data() + kBefore, m.data() + kBefore}, count);
        expect_same_bits(p, expected_p, rules.instructions);
        expect_same_bits(m, expected_m, rules.instructions);
      }
    }
  }
}

// Bit 0: it decays. Bit 1: the decay is decoupled.
AdamUpdate adam_update_with(unsigned bits) {
  return {.beta1 = 0.9F,
          .gradient_share = 0.1F,
          .beta2 = 0.99F,
          .square_share = 0.01F,
          .root_correction = 0.3F,
          .eps = 1e-3F,
          .minus_step_size = -0.02F,
          .decay = 0.97F,
          .decays = (bits & 1U) != 0,
          .decoupled = (bits & 2U) != 0};
}

TEST(UpdateRules, AdamRoundsEachElementAsDocumented) {
  for (const UpdateRules& rules : all_rules()) {
    const bool fused_add = rules.rounding != Rounding::separate;
    const bool fused_product = rules.rounding == Rounding::fused;
    for (std::size_t count = 0; count <= 70; ++count) {
      for (unsigned bits = 0; bits < 4; ++bits) {
        const AdamUpdate u = adam_update_with(bits);
        const std::size_t all = kBefore + count + kAfter;
        auto p = values(all, 1);
        const auto g = values(all, 2);
        auto m = values(all, 3);
        auto v = values(all, 4);
        for (auto& x : v) x = std::abs(x);
        auto expected_p = p;
        auto expected_m = m;
        auto expected_v = v;
        for (std::size_t i = kBefore; i < kBefore + count; ++i) {
          float direction = g[i];
          if (u.decays && u.decoupled) expected_p[i] *= 0.97F;
          if (u.decays && !u.decoupled) direction = add_product(fused_add, g[i], p[i], 0.97F);
          expected_m[i] = add_product(fused_add, m[i] * 0.9F, direction, 0.1F);
          expected_v[i] = add_product(fused_product, v[i] * 0.99F, 0.01F * direction, direction);
          const float denominator = std::sqrt(expected_v[i]) / 0.3F + 1e-3F;
          expected_p[i] += -0.02F * expected_m[i] / denominator;
        }
        rules.adam(u,
                   {p.data() + kBefore, g.data() + kBefore, m.data() + kBefore, v.data() + kBefore},
                   count);
        expect_same_bits(p, expected_p, rules.instructions);
        expect_same_bits(m, expected_m, rules.instructions);
        expect_same_bits(v, expected_v, rules.instructions);
      }
    }
  }
}

void roots_of_the_standard_library(const float* values, float* roots, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) roots[i] = std::sqrt(values[i]);
}
void roots_that_are_one(const float*, float* roots, std::size_t count) {
  std::fill_n(roots, count, 1.0F);
}

// Blocks of 4096 elements.
TEST(RunAdam, RootsFromOutsideGiveTheSameBitsInAnyNumberOfBlocks) {
  for (UpdateRules rules : all_rules()) {
    for (const std::size_t count : {1U, 4095U, 4096U, 4097U, 10'000U}) {
      for (const unsigned bits : {0U, 1U, 3U}) {
        const AdamUpdate u = adam_update_with(bits);
        auto p = values(count, 1);
        const auto g = values(count, 2);
        auto m = values(count, 3);
        auto v = values(count, 4);
        for (auto& x : v) x = std::abs(x);
        auto expected_p = p;
        auto expected_m = m;
        auto expected_v = v;
        rules.square_roots = nullptr;
        run_adam(rules, u, {expected_p.data(), g.data(), expected_m.data(), expected_v.data()},
                 count);
        rules.square_roots = roots_of_the_standard_library;
        run_adam(rules, u, {p.data(), g.data(), m.data(), v.data()}, count);
        expect_same_bits(p, expected_p, rules.instructions);
        expect_same_bits(m, expected_m, rules.instructions);
        expect_same_bits(v, expected_v, rules.instructions);
      }
    }
  }
}

TEST(RunAdam, UsesTheRootsOfTheRules) {
  for (UpdateRules rules : all_rules()) {
    rules.square_roots = roots_that_are_one;
    std::vector<float> p(5000, 2);
    const std::vector<float> g(5000, 4);
    std::vector<float> m(5000, 0);
    std::vector<float> v(5000, 0);
    run_adam(rules,
             {.gradient_share = 1, .square_share = 1, .root_correction = 1, .minus_step_size = -1},
             {p.data(), g.data(), m.data(), v.data()}, p.size());
    EXPECT_EQ(p, std::vector<float>(5000, 2 - 4)) << rules.instructions;
    EXPECT_EQ(v, std::vector<float>(5000, 16));
  }
}

TEST(UpdateRules, MomentumIsNotTouchedWithoutMomentum) {
  for (const UpdateRules& rules : all_rules()) {
    float p = 2;
    const float g = 3;
    rules.sgd({.minus_lr = -1}, {&p, &g, nullptr}, 1);
    EXPECT_EQ(p, -1);
  }
}

TEST(UpdateRules, EachRoundingIsOfferedOnce) {
  const auto rules = update_rules();
  ASSERT_EQ(rules.size(), 3U);
  EXPECT_EQ(rules[0].rounding, Rounding::fused);
  EXPECT_EQ(rules[1].rounding, Rounding::fused_add);
  EXPECT_EQ(rules[2].rounding, Rounding::separate);
}

TEST(SgdUpdate, RoundsOnceFromDouble) {
  const auto u = sgd_update(
      {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 1e-60, .nesterov = true},
      true);
  ASSERT_TRUE(u.has_value());
  EXPECT_EQ(u->minus_lr, -0.1F);
  EXPECT_EQ(u->momentum, 0.9F);
  EXPECT_EQ(u->gradient_share, static_cast<float>(1 - 0.3));
  EXPECT_EQ(u->weight_decay, 0.0F);
  EXPECT_TRUE(u->decays) << "NaN times a decay that rounds to 0 is NaN, also in libtorch";
  EXPECT_TRUE(u->has_momentum && u->nesterov && u->first);
}

TEST(AdamUpdate, CorrectsTheBiasOfTheStep) {
  const AdamSettings settings{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
  const auto u = adam_update(settings, 3);
  ASSERT_TRUE(u.has_value());
  EXPECT_EQ(u->minus_step_size, static_cast<float>(-(0.1 / (1 - std::pow(0.9, 3.0)))));
  EXPECT_EQ(u->root_correction, static_cast<float>(std::sqrt(1 - std::pow(0.999, 3.0))));
  EXPECT_EQ(u->gradient_share, static_cast<float>(1 - 0.9));
  EXPECT_EQ(u->square_share, static_cast<float>(1 - 0.999));
  EXPECT_FALSE(u->decays);
}

TEST(AdamUpdate, DecaysInEitherWay) {
  AdamSettings settings{.lr = 0.1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.2};
  EXPECT_EQ(adam_update(settings, 1)->decay, 0.2F);
  settings.decoupled = true;
  EXPECT_EQ(adam_update(settings, 1)->decay, static_cast<float>(1 - 0.1 * 0.2));
}

TEST(Updates, CoefficientsTooLargeForAFloatAreRefused) {
  EXPECT_FALSE(sgd_update({.lr = 1e39}, false).has_value());
  EXPECT_FALSE(sgd_update({.lr = 1, .weight_decay = -1e39}, false).has_value());
  EXPECT_FALSE(adam_update({.lr = 1e39, .beta1 = 0.9, .beta2 = 0.9}, 1).has_value());
  EXPECT_FALSE(adam_update({.lr = 1, .beta1 = 0.9, .beta2 = 0.9, .eps = 1e39}, 1).has_value());
  EXPECT_TRUE(sgd_update({.lr = std::numeric_limits<double>::infinity()}, false).has_value());
}

}  // namespace
}  // namespace ddp::optim
