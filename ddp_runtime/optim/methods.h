// SPDX-License-Identifier: Apache-2.0
// What distinguishes SGD, Adam and AdamW: the state of a parameter, and the update.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "ddp_runtime/optim/fused_update.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/optim/update_rules.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::optim {

template <class State>
State* find_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  const auto found = optimizer.state().find(torch_compat::state_key(parameter));
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

template <class State>
State& add_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& slot = optimizer.state()[torch_compat::state_key(parameter)];
  slot = std::make_unique<State>();
  return static_cast<State&>(*slot);
}

inline float* floats(const torch::Tensor& tensor) {
  return tensor.data_ptr<float>();
}

// The arrays from an element on, except the gradient.
inline SgdArrays from(const SgdArrays& a, std::int64_t offset, const float* gradient) {
  return {a.parameter + offset, gradient, a.momentum == nullptr ? nullptr : a.momentum + offset};
}

inline AdamArrays from(const AdamArrays& a, std::int64_t offset, const float* gradient) {
  return {a.parameter + offset, gradient, a.average + offset, a.square_average + offset};
}

// How SGD updates a parameter: whether it fits, the state it needs, and its
// arrays. AdamMethod has the same members for Adam and AdamW. A state is null
// before the parameter's first step.
struct SgdMethod {
  using Optimizer = torch::optim::SGD;
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  using Update = SgdUpdate;
  using Arrays = SgdArrays;

  static std::optional<Update> update(const Options& options, const State* state) {
    return sgd_update({.lr = options.lr(),
                       .momentum = options.momentum(),
                       .dampening = options.dampening(),
                       .weight_decay = options.weight_decay(),
                       .nesterov = options.nesterov()},
                      state == nullptr);
  }
  // The tensors of an existing state that the update uses.
  static std::vector<torch::Tensor> used(const Options& options, const State& state) {
    if (options.momentum() == 0) return {};
    return {state.momentum_buffer()};
  }
  static bool fits(const Options&) { return true; }
  static bool has_state(const Options& options) { return options.momentum() != 0; }
  // Parameters with the same number can be updated by one operator.
  static std::int64_t number_of_step(const State* state) { return state == nullptr ? 1 : 2; }
  // The state of a parameter, of the type and order of `values`: see Note [Master weights].
  // The first step overwrites the buffer, but it has values in case that memory
  // runs out before.
  static State* create_state(torch::optim::Optimizer& optimizer, const Options& options,
                             const torch::Tensor& parameter, const torch::Tensor& values) {
    if (options.momentum() == 0) return nullptr;
    const auto buffer = state_like(optimizer, values);
    auto& state = add_state<State>(optimizer, parameter);
    state.momentum_buffer(buffer);
    return &state;
  }
  static Arrays arrays(const Options& options, float* values, const float* gradient,
                       const State* state) {
    return {values, gradient, options.momentum() == 0 ? nullptr : floats(state->momentum_buffer())};
  }
  // `state`: used(), or copies of it.
  static void append_state(const std::vector<torch::Tensor>& state, FusedLists& lists) {
    if (!state.empty()) lists.averages.push_back(state.front());
  }
  static void run_fused(const FusedLists& lists, const Options& options, std::int64_t number) {
    fused_sgd(lists, options, number == 1);
  }
  // libtorch, too, changes the parameter without a new version.
  static void finish(const torch::Tensor&, State*) {}
  // Calls `use` with a reference to each array of the state.
  template <class Use>
  static void for_each_array_of_state(Arrays& arrays, const Use& use) {
    if (arrays.momentum != nullptr) use(arrays.momentum);
  }
  template <class Use>
  static void for_each_tensor(State& state, const Use& use) {
    use(state.momentum_buffer());
  }
  static constexpr bool kFirstStepDiffers = true;
  static void take_back(State&) {}
  static void run(const UpdateRules& rules, const Update& u, const Arrays& a, std::size_t n) {
    rules.sgd(u, a, n);
  }
};

template <class OptimizerT, class OptionsT, class StateT, bool kDecoupled>
struct AdamMethod {
  using Optimizer = OptimizerT;
  using Options = OptionsT;
  using State = StateT;
  using Update = AdamUpdate;
  using Arrays = AdamArrays;

  static std::optional<Update> update(const Options& options, const State* state) {
    return adam_update({.lr = options.lr(),
                        .beta1 = std::get<0>(options.betas()),
                        .beta2 = std::get<1>(options.betas()),
                        .eps = options.eps(),
                        .weight_decay = options.weight_decay(),
                        .decoupled = kDecoupled},
                       number_of_step(state));
  }
  static std::vector<torch::Tensor> used(const Options& options, const State& state) {
    if (options.amsgrad()) {
      return {state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()};
    }
    return {state.exp_avg(), state.exp_avg_sq()};
  }
  static bool fits(const Options& options) { return !options.amsgrad(); }
  static bool has_state(const Options&) { return true; }
  static std::int64_t number_of_step(const State* state) {
    return (state == nullptr ? 0 : state->step()) + 1;
  }
  static State* create_state(torch::optim::Optimizer& optimizer, const Options& options,
                             const torch::Tensor& parameter, const torch::Tensor& values) {
    const auto zeros = [&] { return state_like(optimizer, values); };
    const auto average = zeros();
    const auto square_average = zeros();
    const auto max_square_average = options.amsgrad() ? zeros() : torch::Tensor();
    auto& state = add_state<State>(optimizer, parameter);
    state.step(0);
    state.exp_avg(average);
    state.exp_avg_sq(square_average);
    state.max_exp_avg_sq(max_square_average);
    return &state;
  }
  static void append_state(const std::vector<torch::Tensor>& state, FusedLists& lists) {
    lists.averages.push_back(state.at(0));
    lists.square_averages.push_back(state.at(1));
    if (state.size() > 2) lists.max_square_averages.push_back(state.at(2));
  }
  static void run_fused(const FusedLists& lists, const Options& options, std::int64_t number) {
    fused_adam(lists, options, number);
  }
  static Arrays arrays(const Options&, float* values, const float* gradient, const State* state) {
    return {values, gradient, floats(state->exp_avg()), floats(state->exp_avg_sq())};
  }
  // A new version lets backward notice that a value it saved has changed.
  static void finish(const torch::Tensor& parameter, State* state) {
    state->step(state->step() + 1);
    parameter.unsafeGetTensorImpl()->bump_version();
  }
  template <class Use>
  static void for_each_array_of_state(Arrays& arrays, const Use& use) {
    use(arrays.average);
    use(arrays.square_average);
  }
  template <class Use>
  static void for_each_tensor(State& state, const Use& use) {
    use(state.exp_avg());
    use(state.exp_avg_sq());
    use(state.max_exp_avg_sq());
  }
  static constexpr bool kFirstStepDiffers = false;
  static void take_back(State& state) { state.step(state.step() - 1); }
  static void run(const UpdateRules& rules, const Update& u, const Arrays& a, std::size_t n) {
    run_adam(rules, u, a, n);
  }
};

using AdamCase = AdamMethod<torch::optim::Adam, torch::optim::AdamOptions,
                            torch::optim::AdamParamState, /*kDecoupled=*/false>;
using AdamWCase = AdamMethod<torch::optim::AdamW, torch::optim::AdamWOptions,
                             torch::optim::AdamWParamState, /*kDecoupled=*/true>;

}  // namespace ddp::optim
