// SPDX-License-Identifier: Apache-2.0
// The loops of the update rules. Each file that includes this header is compiled for another
// instruction set. Everything is in an anonymous namespace, and nothing here calls an inline
// function of a library: the linker keeps one copy of such a function, perhaps the one with
// instructions that this CPU does not have.
#pragma once

#include "ddp_runtime/optim/update_rules.h"

namespace ddp::optim {
namespace {

// Returns sum + a * b.
template <bool kFused>
inline float add_product(float sum, float a, float b) {
  if constexpr (kFused) {
    return __builtin_fmaf(a, b, sum);
  } else {
    return sum + a * b;
  }
}

enum class Momentum : std::uint8_t { none, first, later };

template <bool kFused, bool kDecays, Momentum kMomentum, bool kNesterov>
void sgd_loop(const SgdUpdate& update, const SgdArrays& arrays, std::size_t count) {
  const SgdUpdate u = update;
  float* __restrict parameter = arrays.parameter;
  const float* __restrict gradient = arrays.gradient;
  float* __restrict momentum = arrays.momentum;
  for (std::size_t i = 0; i < count; ++i) {
    float direction = gradient[i];
    if constexpr (kDecays) {
      direction = add_product<kFused>(direction, parameter[i], u.weight_decay);
    }
    if constexpr (kMomentum != Momentum::none) {
      float average = direction;
      if constexpr (kMomentum == Momentum::later) {
        average = add_product<kFused>(momentum[i] * u.momentum, direction, u.gradient_share);
      }
      momentum[i] = average;
      direction = kNesterov ? add_product<kFused>(direction, average, u.momentum) : average;
    }
    parameter[i] = add_product<kFused>(parameter[i], direction, u.minus_lr);
  }
}

template <bool kFused, bool kDecays>
void sgd_with_momentum(const SgdUpdate& u, const SgdArrays& arrays, std::size_t count) {
  if (!u.has_momentum) {
    sgd_loop<kFused, kDecays, Momentum::none, false>(u, arrays, count);
  } else if (u.first) {
    (u.nesterov ? sgd_loop<kFused, kDecays, Momentum::first, true>
                : sgd_loop<kFused, kDecays, Momentum::first, false>)(u, arrays, count);
  } else {
    (u.nesterov ? sgd_loop<kFused, kDecays, Momentum::later, true>
                : sgd_loop<kFused, kDecays, Momentum::later, false>)(u, arrays, count);
  }
}

template <Rounding kRounding>
void sgd(const SgdUpdate& u, const SgdArrays& arrays, std::size_t count) {
  constexpr bool kFused = kRounding != Rounding::separate;
  (u.decays ? sgd_with_momentum<kFused, true> : sgd_with_momentum<kFused, false>)(u, arrays, count);
}

enum class Decay : std::uint8_t { none, joins_gradient, shrinks_parameter };

template <Rounding kRounding, Decay kDecay>
inline void update_averages(const AdamUpdate& u, float p, float g, float& m, float& v) {
  constexpr bool kFusedAdd = kRounding != Rounding::separate;
  constexpr bool kFusedProduct = kRounding == Rounding::fused;
  if constexpr (kDecay == Decay::joins_gradient) g = add_product<kFusedAdd>(g, p, u.decay);
  m = add_product<kFusedAdd>(m * u.beta1, g, u.gradient_share);
  v = add_product<kFusedProduct>(v * u.beta2, u.square_share * g, g);
}

template <Decay kDecay>
inline float updated_parameter(const AdamUpdate& u, float p, float m, float root) {
  if constexpr (kDecay == Decay::shrinks_parameter) p *= u.decay;
  const float denominator = root / u.root_correction + u.eps;
  return p + u.minus_step_size * m / denominator;
}

template <Rounding kRounding, Decay kDecay>
void adam_loop(const AdamUpdate& update, const AdamArrays& arrays, std::size_t count) {
  const AdamUpdate u = update;
  float* __restrict parameter = arrays.parameter;
  const float* __restrict gradient = arrays.gradient;
  float* __restrict average = arrays.average;
  float* __restrict square_average = arrays.square_average;
  for (std::size_t i = 0; i < count; ++i) {
    float m = average[i];
    float v = square_average[i];
    update_averages<kRounding, kDecay>(u, parameter[i], gradient[i], m, v);
    average[i] = m;
    square_average[i] = v;
    parameter[i] = updated_parameter<kDecay>(u, parameter[i], m, __builtin_sqrtf(v));
  }
}

template <Rounding kRounding, Decay kDecay>
void averages_loop(const AdamUpdate& update, const AdamArrays& arrays, std::size_t count) {
  const AdamUpdate u = update;
  const float* __restrict parameter = arrays.parameter;
  const float* __restrict gradient = arrays.gradient;
  float* __restrict average = arrays.average;
  float* __restrict square_average = arrays.square_average;
  for (std::size_t i = 0; i < count; ++i) {
    float m = average[i];
    float v = square_average[i];
    update_averages<kRounding, kDecay>(u, parameter[i], gradient[i], m, v);
    average[i] = m;
    square_average[i] = v;
  }
}

template <Decay kDecay>
void parameter_loop(const AdamUpdate& update, const AdamArrays& arrays, const float* square_roots,
                    std::size_t count) {
  const AdamUpdate u = update;
  float* __restrict parameter = arrays.parameter;
  const float* __restrict average = arrays.average;
  const float* __restrict roots = square_roots;
  for (std::size_t i = 0; i < count; ++i) {
    parameter[i] = updated_parameter<kDecay>(u, parameter[i], average[i], roots[i]);
  }
}

template <Rounding kRounding>
void adam(const AdamUpdate& u, const AdamArrays& arrays, std::size_t count) {
  if (!u.decays) {
    adam_loop<kRounding, Decay::none>(u, arrays, count);
  } else if (u.decoupled) {
    adam_loop<kRounding, Decay::shrinks_parameter>(u, arrays, count);
  } else {
    adam_loop<kRounding, Decay::joins_gradient>(u, arrays, count);
  }
}

template <Rounding kRounding>
void adam_averages(const AdamUpdate& u, const AdamArrays& arrays, std::size_t count) {
  if (u.decays && !u.decoupled) {
    averages_loop<kRounding, Decay::joins_gradient>(u, arrays, count);
  } else {
    averages_loop<kRounding, Decay::none>(u, arrays, count);
  }
}

inline void adam_parameter(const AdamUpdate& u, const AdamArrays& arrays, const float* roots,
                           std::size_t count) {
  if (u.decays && u.decoupled) {
    parameter_loop<Decay::shrinks_parameter>(u, arrays, roots, count);
  } else {
    parameter_loop<Decay::none>(u, arrays, roots, count);
  }
}

inline float widened(Bf16Bits value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value) << 16);
}

inline void widen(const Bf16Bits* values, float* floats, std::size_t count) {
  const Bf16Bits* __restrict from = values;
  float* __restrict to = floats;
  for (std::size_t i = 0; i < count; ++i) to[i] = widened(from[i]);
}

inline Bf16Bits rounded(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t nearest = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
  return static_cast<Bf16Bits>(is_nan ? 0x7fc0U : nearest);
}

inline void round(const float* floats, Bf16Bits* values, std::size_t count) {
  const float* __restrict from = floats;
  Bf16Bits* __restrict to = values;
  for (std::size_t i = 0; i < count; ++i) to[i] = rounded(from[i]);
}

inline void adopt(const Bf16Bits* weights, float* values, std::size_t count) {
  const Bf16Bits* __restrict from = weights;
  float* __restrict to = values;
  for (std::size_t i = 0; i < count; ++i) {
    to[i] = rounded(to[i]) == from[i] ? to[i] : widened(from[i]);
  }
}

template <Rounding kRounding>
constexpr UpdateRules rules_for(const char* instructions) {
  return {instructions,
          kRounding,
          sgd<kRounding>,
          adam<kRounding>,
          adam_averages<kRounding>,
          adam_parameter,
          widen,
          round,
          adopt};
}

}  // namespace
}  // namespace ddp::optim
