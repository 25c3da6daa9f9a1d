// SPDX-License-Identifier: Apache-2.0
// The updates of SGD, Adam and AdamW in one pass over memory, for arrays of floats. Knows no torch.
//
// Note [Bits of libtorch]
// libtorch's optimizers call one operator per arithmetic step: each of them reads and writes arrays
// as large as the parameter, twelve times for AdamW. These rules compute bitwise the same values in
// one pass, so that a checkpoint, a report or a comparison between ranks does not depend on whose
// optimizer made the step. Only the sign and payload of a NaN may differ. For that, each element
// goes through the same roundings:
//
// - Coefficients are computed in double and then rounded to float, once per step.
// - `a.add_(b, alpha)` is fma(b, alpha, a) where libtorch's kernels use FMA instructions, and
//   otherwise two roundings. `addcmul_` may differ from `add_`: it has no explicit FMA, but the
//   compiler of libtorch may have contracted it.
// - Multiplication, division and addcdiv_ (a division between the product and the sum) round each
//   operation. So does the square root, except in PyTorch's wheels: theirs comes from MKL, which
//   rounds some values in a thousand to the other neighbor. Then libtorch itself computes the
//   roots, in blocks that stay in the cache.
//
// So there are three ways to round and two kinds of roots, and it depends on libtorch's release,
// its compiler and this CPU which of them are libtorch's. self_check.h finds out. The files of this
// room are compiled with -ffp-contract=off: only the FMAs that are written here exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace ddp::optim {

// Where libtorch's kernels use an FMA.
enum class Rounding : std::uint8_t {
  fused,      // in add_ and in addcmul_
  fused_add,  // only in add_
  separate,   // nowhere: CPUs without AVX2, or ATEN_CPU_CAPABILITY=default
};

// The hyperparameters of a parameter group, named as in torch::optim.
struct SgdSettings {
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

struct AdamSettings {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  bool decoupled = false;  // AdamW: decay shrinks the parameter instead of joining the gradient
};

// The coefficients of one step.
struct SgdUpdate {
  float minus_lr = 0;
  float momentum = 0;
  float gradient_share = 1;  // 1 - dampening
  float weight_decay = 0;
  bool decays = false;        // not "weight_decay != 0": a tiny double rounds to 0
  bool has_momentum = false;  // for the same reason
  bool nesterov = false;
  bool first = false;  // creates the momentum buffer: it becomes the gradient, without dampening
};

struct AdamUpdate {
  float beta1 = 0;
  float gradient_share = 0;  // 1 - beta1
  float beta2 = 0;
  float square_share = 0;     // 1 - beta2
  float root_correction = 0;  // sqrt(1 - beta2^step)
  float eps = 0;
  float minus_step_size = 0;  // -lr / (1 - beta1^step)
  float decay = 0;  // if decoupled, the factor 1 - lr * weight_decay, otherwise weight_decay
  bool decays = false;
  bool decoupled = false;
};

// Both return nullopt if a coefficient is too large for a float, which libtorch reports as an error
// or treats as infinity, depending on the coefficient.
std::optional<SgdUpdate> sgd_update(const SgdSettings& settings, bool first);
// `step` is the number of this step, from 1.
std::optional<AdamUpdate> adam_update(const AdamSettings& settings, std::int64_t step);

// Arrays of the same length that do not overlap. They need no alignment beyond that of a float.
struct SgdArrays {
  float* parameter = nullptr;
  const float* gradient = nullptr;
  float* momentum = nullptr;  // not used if the update has no momentum; not read by a first step
};

struct AdamArrays {
  float* parameter = nullptr;
  const float* gradient = nullptr;
  float* average = nullptr;         // of gradients
  float* square_average = nullptr;  // of their squares
};

// Writes the square roots of `count` values.
using SquareRoots = void (*)(const float* values, float* roots, std::size_t count);

// bfloat16, as the upper half of a float's bits.
using Bf16Bits = std::uint16_t;

// The rules as compiled for one instruction set. Elements do not influence each other, so any range
// can be cut anywhere, and its parts updated by several threads.
struct UpdateRules {
  const char* instructions = "";
  Rounding rounding = Rounding::separate;
  void (*sgd)(const SgdUpdate& update, const SgdArrays& arrays, std::size_t count) = nullptr;
  void (*adam)(const AdamUpdate& update, const AdamArrays& arrays, std::size_t count) = nullptr;
  // adam() in two parts, for square roots that are computed between them.
  void (*adam_averages)(const AdamUpdate& update, const AdamArrays& arrays,
                        std::size_t count) = nullptr;
  void (*adam_parameter)(const AdamUpdate& update, const AdamArrays& arrays, const float* roots,
                         std::size_t count) = nullptr;
  // Between bfloat16 and float, the latter rounded to the nearest, ties to even, a NaN to 0x7fc0:
  // the bits of c10::BFloat16.
  void (*widen)(const Bf16Bits* values, float* floats, std::size_t count) = nullptr;
  void (*round)(const float* floats, Bf16Bits* values, std::size_t count) = nullptr;
  // Where a value, rounded as above, is not the weight: gives it the weight's value.
  void (*adopt)(const Bf16Bits* weights, float* values, std::size_t count) = nullptr;
  SquareRoots square_roots = nullptr;  // null: those of the instruction set
};

// Updates the arrays with the square roots of the rules.
void run_adam(const UpdateRules& rules, const AdamUpdate& update, const AdamArrays& arrays,
              std::size_t count);

// The rules that this CPU can run, one for each way to round, the likeliest first. For each of
// them, the fastest instructions are chosen. The span lives as long as the process.
std::span<const UpdateRules> update_rules();

}  // namespace ddp::optim
