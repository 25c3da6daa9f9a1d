// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/optimizers.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ddp_runtime/optim/fused_update.h"
#include "ddp_runtime/optim/plain_memory.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::optim {
namespace {

using torch::optim::OptimizerParamGroup;

// Fewer elements are not worth another thread; libtorch's operators use the
// same number.
constexpr std::int64_t kGrain = 32768;

// Lets an optimizer see other parameter groups while this object lives.
// libtorch's step goes over all groups of the optimizer; this is how it updates
// some parameters with the optimizer's own state, and leaves the rest alone,
// even if it throws.
class ReplacedGroups {
 public:
  ReplacedGroups(torch::optim::Optimizer& optimizer, std::vector<OptimizerParamGroup> groups)
      : groups_(optimizer.param_groups()), others_(std::move(groups)) {
    groups_.swap(others_);
  }
  ~ReplacedGroups() { groups_.swap(others_); }
  ReplacedGroups(const ReplacedGroups&) = delete;
  ReplacedGroups& operator=(const ReplacedGroups&) = delete;

 private:
  std::vector<OptimizerParamGroup>& groups_;
  std::vector<OptimizerParamGroup> others_;
};

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

float* floats(const torch::Tensor& tensor) {
  return tensor.data_ptr<float>();
}

SgdArrays from(const SgdArrays& a, std::int64_t offset) {
  return {a.parameter + offset, a.gradient + offset,
          a.momentum == nullptr ? nullptr : a.momentum + offset};
}

AdamArrays from(const AdamArrays& a, std::int64_t offset) {
  return {a.parameter + offset, a.gradient + offset, a.average + offset, a.square_average + offset};
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
  // Parameters with the same number can be updated by one operator.
  static std::int64_t number_of_step(const State* state) { return state == nullptr ? 1 : 2; }
  // The first step overwrites the buffer, but it has values in case that memory
  // runs out before.
  static State* create_state(torch::optim::Optimizer& optimizer, const Options& options,
                             const torch::Tensor& parameter) {
    if (options.momentum() == 0) return nullptr;
    const auto buffer = torch::zeros_like(parameter).detach();
    auto& state = add_state<State>(optimizer, parameter);
    state.momentum_buffer(buffer);
    return &state;
  }
  static Arrays arrays(const Options& options, const torch::Tensor& parameter, const State* state) {
    return {floats(parameter), floats(parameter.grad()),
            options.momentum() == 0 ? nullptr : floats(state->momentum_buffer())};
  }
  static void append_state(const Options& options, const State* state, FusedLists& lists) {
    if (options.momentum() != 0) lists.averages.push_back(state->momentum_buffer());
  }
  static void run_fused(const FusedLists& lists, const Options& options, std::int64_t number) {
    fused_sgd(lists, options, number == 1);
  }
  // libtorch, too, changes the parameter without a new version.
  static void finish(const torch::Tensor&, State*) {}
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
  static std::int64_t number_of_step(const State* state) {
    return (state == nullptr ? 0 : state->step()) + 1;
  }
  static State* create_state(torch::optim::Optimizer& optimizer, const Options& options,
                             const torch::Tensor& parameter) {
    const auto zeros = [&] { return torch::zeros_like(parameter).detach(); };
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
  static void append_state(const Options& options, const State* state, FusedLists& lists) {
    lists.averages.push_back(state->exp_avg());
    lists.square_averages.push_back(state->exp_avg_sq());
    if (options.amsgrad()) lists.max_square_averages.push_back(state->max_exp_avg_sq());
  }
  static void run_fused(const FusedLists& lists, const Options& options, std::int64_t number) {
    fused_adam(lists, options, number);
  }
  static Arrays arrays(const Options&, const torch::Tensor& parameter, const State* state) {
    return {floats(parameter), floats(parameter.grad()), floats(state->exp_avg()),
            floats(state->exp_avg_sq())};
  }
  // A new version lets backward notice that a value it saved has changed.
  static void finish(const torch::Tensor& parameter, State* state) {
    state->step(state->step() + 1);
    parameter.unsafeGetTensorImpl()->bump_version();
  }
  static void run(const UpdateRules& rules, const Update& u, const Arrays& a, std::size_t n) {
    run_adam(rules, u, a, n);
  }
};

// A step of one optimizer: sorts its parameters, and updates each in its way.
template <class Method>
class Step {
 public:
  // Without rules, no parameter is updated in one pass.
  Step(torch::optim::Optimizer& optimizer, const UpdateRules* rules,
       std::function<bool(torch::DeviceType)> fuses)
      : optimizer_(optimizer), rules_(rules), fuses_(std::move(fuses)) {
    for (auto& group : optimizer.param_groups()) sort(group);
  }

  // Whether tensors of the step share memory, so that the order of their
  // updates matters.
  bool shares_memory() const { return memory_.overlap(); }
  bool has_rest() const { return has_rest_; }
  // The groups with the parameters that do not fit.
  std::vector<OptimizerParamGroup> take_rest() { return std::move(rest_); }

  void update_in_one_pass() {
    for (auto& part : one_pass_) {
      create_state(part);
      part.arrays = Method::arrays(*part.options, part.parameter, part.state);
    }
    std::vector<std::int64_t> ends;
    std::int64_t end = 0;
    for (const auto& part : one_pass_) ends.push_back(end += part.parameter.numel());
    at::parallel_for(0, end, kGrain, [&](std::int64_t first, std::int64_t last) {
      update_elements(ends, first, last);
    });
    for (const auto& part : one_pass_) Method::finish(part.parameter, part.state);
  }

  void update_by_fused_operators() {
    for (auto& part : fused_) create_state(part);
    auto left = std::exchange(fused_, {});
    while (!left.empty()) {
      // The parameters that one operator can update with the first one.
      std::vector<Part> together{left.front()};
      std::vector<Part> others;
      for (std::size_t i = 1; i < left.size(); ++i) {
        (go_together(left.front(), left[i]) ? together : others).push_back(left[i]);
      }
      run_fused(together);
      left = std::move(others);
    }
  }

 private:
  struct Part {
    torch::Tensor parameter;
    const typename Method::Options* options;
    typename Method::State* state;
    std::int64_t number_of_step;
    typename Method::Update update;  // of a part that is updated in one pass, like the arrays
    typename Method::Arrays arrays;
  };

  static bool go_together(const Part& a, const Part& b) {
    return a.options == b.options && a.number_of_step == b.number_of_step &&
           a.parameter.device() == b.parameter.device() &&
           a.parameter.scalar_type() == b.parameter.scalar_type();
  }

  static void run_fused(const std::vector<Part>& parts) {
    FusedLists lists;
    const auto& options = *parts.front().options;
    for (const auto& part : parts) {
      lists.parameters.push_back(part.parameter);
      lists.gradients.push_back(part.parameter.grad());
      Method::append_state(options, part.state, lists);
    }
    Method::run_fused(lists, options, parts.front().number_of_step);
    for (const auto& part : parts) Method::finish(part.parameter, part.state);
  }

  void create_state(Part& part) {
    if (part.state != nullptr) return;
    part.state = Method::create_state(optimizer_, *part.options, part.parameter);
  }

  void sort(OptimizerParamGroup& group) {
    const auto& options = static_cast<const typename Method::Options&>(group.options());
    std::vector<torch::Tensor> others;
    for (const auto& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      auto* state = find_state<typename Method::State>(optimizer_, parameter);
      const auto number = Method::number_of_step(state);
      const auto update = Method::update(options, state);
      const auto tensors = used_tensors(parameter, options, state);
      if (rules_ != nullptr && update && Method::fits(options) &&
          fit_one_pass(parameter, tensors)) {
        one_pass_.push_back({parameter, &options, state, number, *update, {}});
        remember_memory(parameter, tensors);
      } else if (kHasFusedUpdates && fuses_(parameter.device().type()) &&
                 can_be_fused(parameter, tensors)) {
        fused_.push_back({parameter, &options, state, number, {}, {}});
        remember_memory(parameter, tensors);
      } else {
        others.push_back(parameter);
      }
    }
    has_rest_ = has_rest_ || !others.empty();
    rest_.emplace_back(std::move(others), group.options().clone());
  }

  // The gradient, and the tensors of the state, if there is one.
  static std::vector<torch::Tensor> used_tensors(const torch::Tensor& parameter,
                                                 const typename Method::Options& options,
                                                 const typename Method::State* state) {
    auto tensors = state == nullptr ? std::vector<torch::Tensor>{} : Method::used(options, *state);
    tensors.insert(tensors.begin(), parameter.grad());
    return tensors;
  }

  static bool fit_one_pass(const torch::Tensor& parameter,
                           const std::vector<torch::Tensor>& tensors) {
    return is_plain(parameter) && std::ranges::all_of(tensors, [&](const auto& tensor) {
             return is_plain(tensor) && same_order(parameter, tensor);
           });
  }

  void remember_memory(const torch::Tensor& parameter, const std::vector<torch::Tensor>& tensors) {
    memory_.add_written(parameter);
    memory_.add_read(tensors.front());
    for (std::size_t i = 1; i < tensors.size(); ++i) memory_.add_written(tensors[i]);
  }

  // Updates the elements [first, last) of all parts, which are numbered one
  // part after the other.
  void update_elements(const std::vector<std::int64_t>& ends, std::int64_t first,
                       std::int64_t last) const {
    auto index = static_cast<std::size_t>(std::ranges::upper_bound(ends, first) - ends.begin());
    while (first < last) {
      const auto& part = one_pass_[index];
      const std::int64_t offset = first - (ends[index] - part.parameter.numel());
      const std::int64_t count = std::min(last, ends[index]) - first;
      Method::run(*rules_, part.update, from(part.arrays, offset), static_cast<std::size_t>(count));
      first += count;
      ++index;
    }
  }

  torch::optim::Optimizer& optimizer_;
  const UpdateRules* rules_;
  std::function<bool(torch::DeviceType)> fuses_;
  MemoryRanges memory_;
  std::vector<Part> one_pass_;
  std::vector<Part> fused_;
  std::vector<OptimizerParamGroup> rest_;
  bool has_rest_ = false;
};

// libtorch's step comes first: it may refuse a gradient.
template <class Method>
torch::Tensor step_of(typename Method::Optimizer& optimizer, const UpdateRules* rules,
                      const std::function<bool(torch::DeviceType)>& fuses,
                      const torch::optim::Optimizer::LossClosure& closure) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  using Libtorch [[maybe_unused]] = typename Method::Optimizer;  // Clang 14 misses its uses
  if (rules == nullptr && !kHasFusedUpdates) {
    optimizer.Libtorch::step(nullptr);
    return loss;
  }
  Step<Method> step(optimizer, rules, fuses);
  if (step.shares_memory()) {
    optimizer.Libtorch::step(nullptr);
    return loss;
  }
  if (step.has_rest()) {
    const ReplacedGroups some(optimizer, step.take_rest());
    optimizer.Libtorch::step(nullptr);
  }
  step.update_in_one_pass();
  step.update_by_fused_operators();
  return loss;
}

using AdamCase = AdamMethod<torch::optim::Adam, torch::optim::AdamOptions,
                            torch::optim::AdamParamState, /*kDecoupled=*/false>;
using AdamWCase = AdamMethod<torch::optim::AdamW, torch::optim::AdamWOptions,
                             torch::optim::AdamWParamState, /*kDecoupled=*/true>;

}  // namespace

torch::Tensor SGD::step(LossClosure closure) {
  return step_of<SgdMethod>(
      *this, rules(), [this](torch::DeviceType type) { return fuses(type); }, closure);
}
torch::Tensor Adam::step(LossClosure closure) {
  return step_of<AdamCase>(
      *this, rules(), [this](torch::DeviceType type) { return fuses(type); }, closure);
}
torch::Tensor AdamW::step(LossClosure closure) {
  return step_of<AdamWCase>(
      *this, rules(), [this](torch::DeviceType type) { return fuses(type); }, closure);
}

}  // namespace ddp::optim
