// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/update_rules.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "ddp_runtime/optim/update_rules_sets.h"

namespace ddp::optim {
namespace {

// Infinity and NaN have their own floats; libtorch accepts them, too.
bool fits_float(double value) {
  return !std::isfinite(value) || std::abs(value) <= std::numeric_limits<float>::max();
}

bool all_fit_float(std::initializer_list<double> values) {
  for (const double value : values) {
    if (!fits_float(value)) return false;
  }
  return true;
}

float rounded(double value) {
  return static_cast<float>(value);
}

const UpdateRules* rules_of_this_cpu() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return avx2_rules();
#endif
  return baseline_rules();
}

}  // namespace

std::optional<SgdUpdate> sgd_update(const SgdSettings& settings, bool first) {
  const double minus_lr = -1 * settings.lr;
  const double gradient_share = 1 - settings.dampening;
  if (!all_fit_float({minus_lr, gradient_share, settings.momentum, settings.weight_decay})) {
    return std::nullopt;
  }
  return SgdUpdate{.minus_lr = rounded(minus_lr),
                   .momentum = rounded(settings.momentum),
                   .gradient_share = rounded(gradient_share),
                   .weight_decay = rounded(settings.weight_decay),
                   .decays = settings.weight_decay != 0,
                   .has_momentum = settings.momentum != 0,
                   .nesterov = settings.nesterov,
                   .first = first};
}

std::optional<AdamUpdate> adam_update(const AdamSettings& settings, std::int64_t step) {
  const auto power = static_cast<double>(step);
  const double minus_step_size = -(settings.lr / (1 - std::pow(settings.beta1, power)));
  const double root_correction = std::sqrt(1 - std::pow(settings.beta2, power));
  const double decay =
      settings.decoupled ? 1 - settings.lr * settings.weight_decay : settings.weight_decay;
  if (!all_fit_float({minus_step_size, root_correction, decay, settings.beta1, settings.beta2,
                      1 - settings.beta1, 1 - settings.beta2, settings.eps})) {
    return std::nullopt;
  }
  return AdamUpdate{.beta1 = rounded(settings.beta1),
                    .gradient_share = rounded(1 - settings.beta1),
                    .beta2 = rounded(settings.beta2),
                    .square_share = rounded(1 - settings.beta2),
                    .root_correction = rounded(root_correction),
                    .eps = rounded(settings.eps),
                    .minus_step_size = rounded(minus_step_size),
                    .decay = rounded(decay),
                    .decays = settings.weight_decay != 0,
                    .decoupled = settings.decoupled};
}

void run_adam(const UpdateRules& rules, const AdamUpdate& update, const AdamArrays& arrays,
              std::size_t count) {
  if (rules.square_roots == nullptr) return rules.adam(update, arrays, count);
  // A call costs more than a microsecond, so blocks fill the second cache, not the first: 16384
  // values take 0.86 times as long as blocks of 4096 (docs/evidence/benchmarks.md).
  constexpr std::size_t kBlock = 16384;
  std::array<float, kBlock> roots;  // NOLINT(cppcoreguidelines-pro-type-member-init): written first
  for (std::size_t first = 0; first < count; first += kBlock) {
    const std::size_t length = std::min(kBlock, count - first);
    const AdamArrays block{arrays.parameter + first, arrays.gradient + first,
                           arrays.average + first, arrays.square_average + first};
    rules.adam_averages(update, block, length);
    rules.square_roots(block.square_average, roots.data(), length);
    rules.adam_parameter(update, block, roots.data(), length);
  }
}

std::span<const UpdateRules> update_rules() {
  return {rules_of_this_cpu(), kRoundings};
}

}  // namespace ddp::optim
