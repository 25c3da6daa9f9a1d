// SPDX-License-Identifier: Apache-2.0
// AdamW: one step for all parameters of a bucket in one launch. Reads the reduced gradients (fp32
// or bf16), updates the fp32 parameters and averages, and writes bf16 weights if they are wanted.
//
// Note [Rounding of ATen]
// Each element goes through the roundings of ATen's fused AdamW on CUDA (adam_math in
// ATen/native/cuda/fused_adam_utils.cuh, the same in PyTorch 2.11 and 2.15): its FMAs where the
// source has std::fma, one FMA where the compiler contracts `param -= lr * weight_decay * param`,
// and powf for the bias corrections. So with an fp32 gradient and without a clip factor the same
// bits are expected. They depend on nvcc and its powf, and have not been compared on a GPU. ATen
// has no counterpart for the rest: a bf16 gradient is converted first, and the clip factor
// multiplies the gradient after the division by the loss scale.
#pragma once

#include <cmath>
#include <cstdint>

#include "ddp_runtime/kernels/elements.h"
#include "ddp_runtime/kernels/host_device.h"
#include "ddp_runtime/kernels/tiles.h"

namespace ddp::kernels {

// One parameter, or several that are contiguous in all arrays. All arrays are memory of the device,
// have `count` elements, are aligned to an element and do not overlap. The table of pieces is
// memory of the device, or page-locked memory of the host.
struct AdamWPiece {
  const void* gradient = nullptr;
  float* parameter = nullptr;
  float* average = nullptr;         // of gradients
  float* square_average = nullptr;  // of their squares
  std::uint16_t* weight = nullptr;  // bf16: the rounded parameter; null if it is not wanted
  std::uint64_t count = 0;          // elements
  std::uint64_t first_tile = 0;     // see number_tiles()
  float weight_decay = 0;
  std::uint32_t unused = 0;
};

// The pointers to single values are memory of the device, so that the host need not know them.
struct AdamWArguments {
  const AdamWPiece* pieces = nullptr;
  std::uint64_t count = 0;  // pieces
  std::uint64_t tiles = 0;
  const float* step = nullptr;         // the number of this step, from 1
  const float* lr_value = nullptr;     // replaces `lr`; may be null
  const float* loss_scale = nullptr;   // divides gradients; may be null
  const float* clip_factor = nullptr;  // multiplies gradients; may be null
  const float* skip = nullptr;         // if it is not 0, nothing is written; may be null
  float lr = 0;
  float beta1 = 0;
  float beta2 = 0;
  float eps = 0;
};
static_assert(sizeof(AdamWPiece) == 64 && sizeof(AdamWArguments) == 80, "the same on both sides");

// What is the same for all elements of a launch.
struct AdamWStep {
  float lr = 0;
  float beta1 = 0;
  float beta2 = 0;
  float eps = 0;
  float step_size = 0;
  float root_correction = 0;  // sqrt(1 - beta2^step)
  float loss_scale = 1;
  float clip_factor = 1;
};

SLURM_DDP_HOST_DEVICE inline AdamWStep adamw_step(const AdamWArguments& a) {
  AdamWStep s{a.lr_value != nullptr ? *a.lr_value : a.lr, a.beta1, a.beta2, a.eps};
  const float step = *a.step;
  s.step_size = s.lr / (1 - powf(s.beta1, step));
  s.root_correction = sqrtf(1 - powf(s.beta2, step));
  // Division and multiplication by 1 do not change a value, so absent factors need no branch.
  if (a.loss_scale != nullptr) s.loss_scale = *a.loss_scale;
  if (a.clip_factor != nullptr) s.clip_factor = *a.clip_factor;
  return s;
}

SLURM_DDP_HOST_DEVICE inline void adamw_element(const AdamWStep& s, float minus_decay,
                                                float gradient, float& parameter, float& average,
                                                float& square_average) {
  const float g = gradient / s.loss_scale * s.clip_factor;
  float p = parameter;
  p = __builtin_fmaf(minus_decay, p, p);  // without decay, that is p
  average = __builtin_fmaf(s.beta1, average, __builtin_fmaf(-s.beta1, g, g));
  const float square = g * g;
  square_average =
      __builtin_fmaf(s.beta2, square_average, __builtin_fmaf(-s.beta2, square, square));
  const float denominator = sqrtf(square_average) / s.root_correction + s.eps;
  parameter = p - s.step_size * average / denominator;
}

template <class Gradient>
SLURM_DDP_HOST_DEVICE void adamw_range(const AdamWStep& s, const AdamWPiece& piece,
                                       const TileRange& range, std::uint32_t thread) {
  constexpr int kGroup = elements_of_group(sizeof(float));
  using Floats = Group<F32, kGroup>;
  using Gradients = Group<Gradient, kGroup>;
  using Weights = Group<Bf16, kGroup>;
  const auto* const gradient =
      static_cast<const typename Gradient::Bits*>(piece.gradient) + range.first;
  float* const parameter = piece.parameter + range.first;
  float* const average = piece.average + range.first;
  float* const square_average = piece.square_average + range.first;
  std::uint16_t* const weight = piece.weight == nullptr ? nullptr : piece.weight + range.first;
  const float minus_decay = -(s.lr * piece.weight_decay);
  const auto head_of = [](const auto* array) {
    return elements_to_group(address_of(array), sizeof(*array), kGroup);
  };
  const std::uint64_t head = head_of(parameter);
  const Split split =
      split_range(range.count, kGroup, head, head_of(gradient), head_of(average),
                  head_of(square_average), weight == nullptr ? head : head_of(weight));
  const auto one = [&](std::uint64_t i) {
    adamw_element(s, minus_decay, Gradient::to_float(gradient[i]), parameter[i], average[i],
                  square_average[i]);
    if (weight != nullptr) weight[i] = Bf16::from_float(parameter[i]);
  };
  for (std::uint64_t i = thread; i < split.head; i += kThreads) one(i);
  for (std::uint64_t group = thread; group < split.groups; group += kThreads) {
    const std::uint64_t i = split.head + group * kGroup;
    const auto gradients = load_group<Gradients>(gradient + i);
    auto parameters = load_group<Floats>(parameter + i);
    auto averages = load_group<Floats>(average + i);
    auto square_averages = load_group<Floats>(square_average + i);
    float p[kGroup];
    float m[kGroup];
    float v[kGroup];
    for (int k = 0; k < kGroup; ++k) {
      p[k] = parameters.get(k);
      m[k] = averages.get(k);
      v[k] = square_averages.get(k);
      adamw_element(s, minus_decay, gradients.get(k), p[k], m[k], v[k]);
    }
    parameters.set(p);
    averages.set(m);
    square_averages.set(v);
    store_group(parameter + i, parameters);
    store_group(average + i, averages);
    store_group(square_average + i, square_averages);
    if (weight == nullptr) continue;
    Weights weights;
    weights.set(p);
    store_group(weight + i, weights);
  }
  const std::uint64_t done = split.head + split.groups * kGroup;
  for (std::uint64_t i = done + thread; i < range.count; i += kThreads) one(i);
}

// The body of the kernel.
template <class Gradient>
SLURM_DDP_HOST_DEVICE void adamw(const AdamWArguments& arguments, const Lane& lane) {
  if (arguments.skip != nullptr && *arguments.skip != 0) return;
  const AdamWStep step = adamw_step(arguments);
  for_each_tile(arguments.pieces, arguments.count, arguments.tiles, lane,
                [&](const AdamWPiece& piece, const TileRange& range) {
                  adamw_range<Gradient>(step, piece, range, lane.thread);
                });
}

}  // namespace ddp::kernels
