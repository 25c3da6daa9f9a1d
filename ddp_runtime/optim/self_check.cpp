// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/self_check.h"

#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "ddp_runtime/optim/libtorch_roots.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::optim {
namespace {

constexpr int kSteps = 3;
// Vectorized loops end with a part that is not a whole vector. The largest array is large enough
// for rare differences such as those of MKL's square root.
constexpr std::array<std::int64_t, 3> kLengths{1, 61, 8191};

// A generator of its own: the user's random numbers must not depend on the check. The values are of
// both signs and differ by seven orders of magnitude.
class Values {
 public:
  torch::Tensor next(std::int64_t count) {
    auto tensor = torch::empty({count}, torch::TensorOptions(torch::kFloat32).device(torch::kCPU));
    std::generate_n(tensor.data_ptr<float>(), count, [&] { return next_float(); });
    return tensor;
  }

 private:
  float next_float() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    const auto high = static_cast<std::int32_t>(state_ >> 32U);
    const int exponent = -static_cast<int>((state_ >> 20U) % 24);
    return std::ldexp(static_cast<float>(high), exponent - 31);
  }

  std::uint64_t state_ = 20'240'229;
};

bool same_bits(const torch::Tensor& a, const torch::Tensor& b) {
  const auto bytes = static_cast<std::size_t>(a.numel()) * sizeof(float);
  return a.numel() == b.numel() && std::memcmp(a.data_ptr(), b.data_ptr(), bytes) == 0;
}

template <class State>
const State& state_of(const torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  return static_cast<const State&>(*optimizer.state().at(torch_compat::state_key(parameter)));
}

bool sgd_equals(const SgdSettings& settings, const UpdateRules& rules, std::int64_t count) {
  Values values;
  auto theirs = values.next(count);
  const auto ours = theirs.clone();
  const auto momentum = torch::zeros_like(ours);
  theirs.requires_grad_(true);
  torch::optim::SGD optimizer(std::vector<torch::Tensor>{theirs},
                              torch::optim::SGDOptions(settings.lr)
                                  .momentum(settings.momentum)
                                  .dampening(settings.dampening)
                                  .weight_decay(settings.weight_decay)
                                  .nesterov(settings.nesterov));
  for (int step = 0; step < kSteps; ++step) {
    const auto gradient = values.next(count);
    theirs.mutable_grad() = gradient.clone();
    optimizer.step();
    rules.sgd(sgd_update(settings, step == 0).value(),
              {ours.data_ptr<float>(), gradient.data_ptr<float>(), momentum.data_ptr<float>()},
              static_cast<std::size_t>(count));
  }
  if (!same_bits(theirs, ours)) return false;
  return settings.momentum == 0 ||
         same_bits(state_of<torch::optim::SGDParamState>(optimizer, theirs).momentum_buffer(),
                   momentum);
}

template <class Optimizer, class Options, class State>
bool adam_equals(const AdamSettings& settings, const UpdateRules& rules, std::int64_t count) {
  Values values;
  auto theirs = values.next(count);
  const auto ours = theirs.clone();
  const auto average = torch::zeros_like(ours);
  const auto square_average = torch::zeros_like(ours);
  theirs.requires_grad_(true);
  Optimizer optimizer(std::vector<torch::Tensor>{theirs},
                      Options(settings.lr)
                          .betas({settings.beta1, settings.beta2})
                          .eps(settings.eps)
                          .weight_decay(settings.weight_decay));
  for (int step = 1; step <= kSteps; ++step) {
    const auto gradient = values.next(count);
    theirs.mutable_grad() = gradient.clone();
    optimizer.step();
    run_adam(rules, adam_update(settings, step).value(),
             {ours.data_ptr<float>(), gradient.data_ptr<float>(), average.data_ptr<float>(),
              square_average.data_ptr<float>()},
             static_cast<std::size_t>(count));
  }
  const auto& state = state_of<State>(optimizer, theirs);
  return same_bits(theirs, ours) && same_bits(state.exp_avg(), average) &&
         same_bits(state.exp_avg_sq(), square_average);
}

bool sgd_equals_for_all_settings(const UpdateRules& rules, std::int64_t count) {
  constexpr std::array<SgdSettings, 4> kSettings{{
      {.lr = 0.1},
      {.lr = 0.03, .weight_decay = 0.01},
      {.lr = 0.03, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
      {.lr = 0.03, .momentum = 0.9, .nesterov = true},
  }};
  return std::ranges::all_of(kSettings, [&](const auto& s) { return sgd_equals(s, rules, count); });
}

bool adam_equals_for_all_settings(bool decoupled, const UpdateRules& rules, std::int64_t count) {
  using namespace torch::optim;
  for (const double weight_decay : {0.0, 0.01}) {
    const AdamSettings settings{.lr = 1e-3,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-8,
                                .weight_decay = weight_decay,
                                .decoupled = decoupled};
    const bool equal =
        decoupled ? adam_equals<AdamW, AdamWOptions, AdamWParamState>(settings, rules, count)
                  : adam_equals<Adam, AdamOptions, AdamParamState>(settings, rules, count);
    if (!equal) return false;
  }
  return true;
}

}  // namespace

bool equals_libtorch(Rule rule, const UpdateRules& rules) {
  const c10::InferenceMode no_inference(false);
  const torch::NoGradGuard no_grad;
  return std::ranges::all_of(kLengths, [&](std::int64_t count) {
    return rule == Rule::sgd ? sgd_equals_for_all_settings(rules, count)
                             : adam_equals_for_all_settings(rule == Rule::adamw, rules, count);
  });
}

const UpdateRules* first_equal(Rule rule, std::span<const UpdateRules> candidates) {
  const auto found = std::ranges::find_if(
      candidates, [&](const UpdateRules& rules) { return equals_libtorch(rule, rules); });
  return found == candidates.end() ? nullptr : &*found;
}

std::span<const UpdateRules> candidates() {
  static const std::vector<UpdateRules> kCandidates = [] {
    const auto own_roots = update_rules();
    std::vector<UpdateRules> all(own_roots.begin(), own_roots.end());
    for (auto rules : own_roots) {
      rules.square_roots = libtorch_roots;
      all.push_back(rules);
    }
    return all;
  }();
  return kCandidates;
}

const UpdateRules* rules_in_use(Rule rule) {
  switch (rule) {
    case Rule::sgd: {
      static const UpdateRules* const kChosen = first_equal(rule, update_rules());
      return kChosen;
    }
    case Rule::adam: {
      static const UpdateRules* const kChosen = first_equal(rule, candidates());
      return kChosen;
    }
    case Rule::adamw: {
      static const UpdateRules* const kChosen = first_equal(rule, candidates());
      return kChosen;
    }
  }
  return nullptr;
}

}  // namespace ddp::optim
