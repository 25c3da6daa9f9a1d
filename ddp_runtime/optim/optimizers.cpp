// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/optimizers.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
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
  static constexpr bool kFirstStepDiffers = false;
  static void take_back(State& state) { state.step(state.step() - 1); }
  static void run(const UpdateRules& rules, const Update& u, const Arrays& a, std::size_t n) {
    run_adam(rules, u, a, n);
  }
};

// Takes back the step unsettled[index] if it was skipped. Its parts are then forgotten.
template <class Method>
void settle(torch::optim::Optimizer& optimizer, std::deque<FlaggedStep>& unsettled,
            std::size_t index, bool skipped) {
  const auto parts = std::exchange(unsettled[index].parts, {});
  if (!skipped) return;
  for (const auto& [key, part] : parts) {
    auto* const state = find_state<typename Method::State>(optimizer, part.parameter);
    if (state == nullptr) continue;
    const auto later =
        std::find_if(unsettled.begin(), unsettled.end(),
                     [key = key](const auto& step) { return step.parts.contains(key); });
    if (!part.has_new_state) {
      Method::take_back(*state);
    } else if (later == unsettled.end()) {
      optimizer.state().erase(torch_compat::state_key(part.parameter));
    } else {
      Method::take_back(*state);
      later->parts.at(key).has_new_state = true;
    }
  }
}

// Waits for the flags. The steps remain in the list for settle_step().
template <class Method>
void settle_now(torch::optim::Optimizer& optimizer, std::deque<FlaggedStep>& unsettled) {
  for (std::size_t i = 0; i < unsettled.size(); ++i) {
    if (unsettled[i].parts.empty()) continue;
    settle<Method>(optimizer, unsettled, i, unsettled[i].flag.template item<float>() != 0);
  }
}

template <class Method>
void settle_oldest(torch::optim::Optimizer& optimizer, std::deque<FlaggedStep>& unsettled,
                   bool skipped) {
  settle<Method>(optimizer, unsettled, 0, skipped);
  unsettled.pop_front();
}

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

  // Whether updating some parameters before the others makes sense and does no
  // harm. A sparse gradient may be refused, which must happen before any update.
  bool can_be_split() const {
    return !(one_pass_.empty() && fused_.empty()) && !shares_memory() && !has_sparse_gradient_ &&
           !rest_shares_storage();
  }

  // Updates all parameters that fit, except those that were updated before.
  void update_all() {
    update_in_one_pass(left_of(one_pass_));
    update_by_fused_operators(left_of(fused_));
  }

  // Updates those of `parameters` that fit and were not updated before.
  void update(std::span<const torch::Tensor> parameters) {
    if (places_.empty()) remember_places();
    std::vector<Part> one_pass;
    std::vector<Part> fused;
    for (const auto& parameter : parameters) {
      const auto found = places_.find(parameter.unsafeGetTensorImpl());
      if (found == places_.end() || std::exchange(found->second->updated, true)) continue;
      (found->second->is_fused ? fused : one_pass).push_back(*found->second);
    }
    update_in_one_pass(std::move(one_pass));
    update_by_fused_operators(std::move(fused));
  }

  // See Note [Skipped steps].
  FlaggedStep update_by_fused_operators(const torch::Tensor& flag,
                                        const std::deque<FlaggedStep>& unsettled) {
    FlaggedStep step{flag, {}};
    for (auto& part : fused_) {
      const bool had_state = part.state != nullptr;
      create_state(part);
      const bool has_new_state = !had_state && part.state != nullptr;
      step.parts[part.parameter.unsafeGetTensorImpl()] = {part.parameter, has_new_state};
      for (const auto& earlier : unsettled) {
        if (earlier.parts.contains(part.parameter.unsafeGetTensorImpl())) {
          part.earlier_flags.push_back(earlier.flag);
        }
      }
    }
    flag_ = flag;
    update_by_fused_operators(std::exchange(fused_, {}));
    return step;
  }

 private:
  struct Part {
    torch::Tensor parameter;
    const typename Method::Options* options;
    typename Method::State* state;
    std::int64_t number_of_step;
    typename Method::Update update;  // of a part that is updated in one pass, like the arrays
    typename Method::Arrays arrays;
    bool is_fused = false;
    bool updated = false;
    std::vector<torch::Tensor> earlier_flags = {};  // of steps that number_of_step counts
  };

  // Whether the order of libtorch's updates and ours could matter.
  bool rest_shares_storage() const {
    if (!has_rest_) return false;
    std::unordered_set<const c10::StorageImpl*> fitting;
    for (const auto* parts : {&one_pass_, &fused_}) {
      for (const auto& part : *parts) {
        fitting.insert(part.parameter.storage().unsafeGetStorageImpl());
      }
    }
    return std::ranges::any_of(rest_, [&](const OptimizerParamGroup& group) {
      return std::ranges::any_of(group.params(), [&](const torch::Tensor& parameter) {
        return parameter.has_storage() &&
               fitting.contains(parameter.storage().unsafeGetStorageImpl());
      });
    });
  }

  void remember_places() {
    for (auto* parts : {&one_pass_, &fused_}) {
      for (auto& part : *parts) places_.emplace(part.parameter.unsafeGetTensorImpl(), &part);
    }
  }

  static std::vector<Part> left_of(std::vector<Part>& parts) {
    auto left = std::exchange(parts, {});
    std::erase_if(left, [](const Part& part) { return part.updated; });
    return left;
  }

  void update_in_one_pass(std::vector<Part> parts) {
    for (auto& part : parts) {
      create_state(part);
      part.arrays = Method::arrays(*part.options, part.parameter, part.state);
    }
    std::vector<std::int64_t> ends;
    std::int64_t end = 0;
    for (const auto& part : parts) ends.push_back(end += part.parameter.numel());
    at::parallel_for(0, end, kGrain, [&](std::int64_t first, std::int64_t last) {
      update_elements(parts, ends, first, last);
    });
    for (const auto& part : parts) Method::finish(part.parameter, part.state);
  }

  void update_by_fused_operators(std::vector<Part> left) {
    for (auto& part : left) create_state(part);
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

  static bool same_tensors(const std::vector<torch::Tensor>& a,
                           const std::vector<torch::Tensor>& b) {
    return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return x.is_same(y); });
  }

  static bool go_together(const Part& a, const Part& b) {
    return a.options == b.options && a.number_of_step == b.number_of_step &&
           same_tensors(a.earlier_flags, b.earlier_flags) &&
           a.parameter.device() == b.parameter.device() &&
           a.parameter.scalar_type() == b.parameter.scalar_type();
  }

  void run_fused(const std::vector<Part>& parts) const {
    FusedLists lists;
    lists.skip = flag_;
    lists.earlier_skips = parts.front().earlier_flags;
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
        fused_.push_back({parameter, &options, state, number, {}, {}, /*is_fused=*/true});
        remember_memory(parameter, tensors);
      } else {
        others.push_back(parameter);
        has_sparse_gradient_ = has_sparse_gradient_ || parameter.grad().layout() != torch::kStrided;
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
  void update_elements(const std::vector<Part>& parts, const std::vector<std::int64_t>& ends,
                       std::int64_t first, std::int64_t last) const {
    auto index = static_cast<std::size_t>(std::ranges::upper_bound(ends, first) - ends.begin());
    while (first < last) {
      const auto& part = parts[index];
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
  std::unordered_map<const c10::TensorImpl*, Part*> places_;  // filled by update()
  std::vector<OptimizerParamGroup> rest_;
  bool has_rest_ = false;
  bool has_sparse_gradient_ = false;  // among the rest
  torch::Tensor flag_;
};

// libtorch's step for the parameters that do not fit.
template <class Method>
void update_rest(typename Method::Optimizer& optimizer, Step<Method>& step) {
  using Libtorch [[maybe_unused]] = typename Method::Optimizer;  // Clang 14 misses its uses
  if (!step.has_rest()) return;
  const ReplacedGroups some(optimizer, step.take_rest());
  optimizer.Libtorch::step(nullptr);
}

// libtorch's step comes first: it may refuse a gradient.
template <class Method>
void update(typename Method::Optimizer& optimizer, const UpdateRules* rules,
            const std::function<bool(torch::DeviceType)>& fuses) {
  using Libtorch [[maybe_unused]] = typename Method::Optimizer;  // Clang 14 misses its uses
  if (rules == nullptr && !kHasFusedUpdates) {
    optimizer.Libtorch::step(nullptr);
    return;
  }
  Step<Method> step(optimizer, rules, fuses);
  if (step.shares_memory()) {
    optimizer.Libtorch::step(nullptr);
    return;
  }
  update_rest(optimizer, step);
  step.update_all();
}

template <class Method>
bool second_step_is_unsure(const std::deque<FlaggedStep>& unsettled) {
  return Method::kFirstStepDiffers && std::ranges::any_of(unsettled, [](const auto& step) {
           return std::ranges::any_of(step.parts,
                                      [](const auto& part) { return part.second.has_new_state; });
         });
}

// Returns false, without an update, if the device cannot decide alone.
template <class Method>
bool update_unless(const torch::Tensor& flag, typename Method::Optimizer& optimizer,
                   std::deque<FlaggedStep>& unsettled) {
  if (!kHasFusedUpdates) return false;
  if (second_step_is_unsure<Method>(unsettled)) settle_now<Method>(optimizer, unsettled);
  Step<Method> step(optimizer, nullptr,
                    [&](torch::DeviceType type) { return type == flag.device().type(); });
  if (flag.is_cpu() || step.shares_memory() || step.has_rest()) return false;
  unsettled.push_back(step.update_by_fused_operators(flag, unsettled));
  return true;
}

template <class Method>
torch::Tensor step_of(typename Method::Optimizer& optimizer, const UpdateRules* rules,
                      const std::function<bool(torch::DeviceType)>& fuses,
                      const torch::optim::Optimizer::LossClosure& closure, torch::Tensor flag,
                      std::deque<FlaggedStep>& unsettled) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode with_gradients(true);
    loss = closure();
  }
  const torch::NoGradGuard no_grad;
  if (flag.defined()) {
    if (update_unless<Method>(flag, optimizer, unsettled)) return loss;
    unsettled.push_back({flag, {}});
    if (flag.item<float>() != 0) return loss;
  }
  settle_now<Method>(optimizer, unsettled);
  update<Method>(optimizer, rules, fuses);
  return loss;
}

template <class Method>
class SplitStep final : public PartialStep {
 public:
  SplitStep(typename Method::Optimizer& optimizer, const UpdateRules* rules,
            std::function<bool(torch::DeviceType)> fuses)
      : optimizer_(optimizer), step_(optimizer, rules, std::move(fuses)) {}

  bool possible() const { return step_.can_be_split(); }

  void update(std::span<const torch::Tensor> parameters) override {
    const torch::NoGradGuard no_grad;
    step_.update(parameters);
  }
  void finish() override {
    const torch::NoGradGuard no_grad;
    update_rest(optimizer_, step_);
    step_.update_all();
  }

 private:
  typename Method::Optimizer& optimizer_;
  Step<Method> step_;
};

template <class Method>
std::unique_ptr<PartialStep> partial_step_of(typename Method::Optimizer& optimizer,
                                             const UpdateRules* rules,
                                             std::function<bool(torch::DeviceType)> fuses,
                                             const torch::Tensor& flag,
                                             std::deque<FlaggedStep>& unsettled) {
  if ((rules == nullptr && !kHasFusedUpdates) || flag.defined()) return nullptr;
  settle_now<Method>(optimizer, unsettled);
  auto step = std::make_unique<SplitStep<Method>>(optimizer, rules, std::move(fuses));
  if (!step->possible()) return nullptr;
  return step;
}

using AdamCase = AdamMethod<torch::optim::Adam, torch::optim::AdamOptions,
                            torch::optim::AdamParamState, /*kDecoupled=*/false>;
using AdamWCase = AdamMethod<torch::optim::AdamW, torch::optim::AdamWOptions,
                             torch::optim::AdamWParamState, /*kDecoupled=*/true>;

}  // namespace

torch::Tensor SGD::step(LossClosure closure) {
  return step_of<SgdMethod>(
      *this, rules(), [this](torch::DeviceType type) { return fuses(type); }, closure,
      std::exchange(next_flag_, {}), unsettled_);
}
void SGD::settle_step(bool skipped) {
  settle_oldest<SgdMethod>(*this, unsettled_, skipped);
}
std::unique_ptr<PartialStep> SGD::begin_partial_step() {
  return partial_step_of<SgdMethod>(
      *this, rules(), [this](torch::DeviceType type) { return fuses(type); }, next_flag_,
      unsettled_);
}
torch::Tensor Adam::step(LossClosure closure) {
  return step_of<AdamCase>(
      *this, rules(), [this](torch::DeviceType type) { return fuses(type); }, closure,
      std::exchange(next_flag_, {}), unsettled_);
}
void Adam::settle_step(bool skipped) {
  settle_oldest<AdamCase>(*this, unsettled_, skipped);
}
std::unique_ptr<PartialStep> Adam::begin_partial_step() {
  return partial_step_of<AdamCase>(
      *this, rules(), [this](torch::DeviceType type) { return fuses(type); }, next_flag_,
      unsettled_);
}
torch::Tensor AdamW::step(LossClosure closure) {
  return step_of<AdamWCase>(
      *this, rules(), [this](torch::DeviceType type) { return fuses(type); }, closure,
      std::exchange(next_flag_, {}), unsettled_);
}
void AdamW::settle_step(bool skipped) {
  settle_oldest<AdamWCase>(*this, unsettled_, skipped);
}
std::unique_ptr<PartialStep> AdamW::begin_partial_step() {
  return partial_step_of<AdamWCase>(
      *this, rules(), [this](torch::DeviceType type) { return fuses(type); }, next_flag_,
      unsettled_);
}

}  // namespace ddp::optim
