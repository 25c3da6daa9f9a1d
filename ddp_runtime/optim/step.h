// SPDX-License-Identifier: Apache-2.0
// How a step is made: in one pass, by fused operators, or, for the rest, by libtorch.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/optim/captured_step.h"
#include "ddp_runtime/optim/fused_update.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/optim/methods.h"
#include "ddp_runtime/optim/offload/host_state.h"
#include "ddp_runtime/optim/one_pass.h"
#include "ddp_runtime/optim/plain_memory.h"
#include "ddp_runtime/optim/skipped_steps.h"
#include "ddp_runtime/optim/step_part.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::optim {

using torch::optim::OptimizerParamGroup;

// How parameters may be updated, apart from libtorch's step.
struct Means {
  const UpdateRules* rules = nullptr;  // null: not in one pass
  std::function<bool(torch::DeviceType)> fuses = [](torch::DeviceType) {
    return false;
  };                                 // by ATen's fused operators?
  MasterWeights* masters = nullptr;  // null: parameters are updated in their own type
  // Null: the state is where its parameters are.
  StateFile* file = nullptr;
  HostState* host = nullptr;
};

// A tensor of a parameter's state where it belongs: itself, or a copy in the file or on the host.
inline torch::Tensor offloaded(const torch::Tensor& state, const torch::Tensor& parameter,
                               const StateFile* file, const HostState* host) {
  if (parameter.is_cpu()) return file == nullptr ? state : file->moved(state);
  return host == nullptr ? state : HostState::moved(state);
}

// A parameter and its master. See Note [Master weights].
struct MasterOf {
  torch::Tensor parameter;
  torch::Tensor values;
};

// A step of one optimizer: sorts its parameters, and updates each in its way.
template <class Method>
class Step {
 public:
  Step(torch::optim::Optimizer& optimizer, Means means)
      : optimizer_(optimizer), means_(std::move(means)) {
    // Of a step in parts that was left by an error.
    if (means_.file != nullptr) means_.file->finish_windows();
    if (means_.host != nullptr) means_.host->begin_step();
    for (auto& group : optimizer.param_groups()) sort(group);
  }

  // Whether tensors of the step share memory, so that the order of their
  // updates matters.
  bool shares_memory() const { return listed_twice_ || memory_.overlap(); }
  bool has_rest() const { return has_rest_; }
  // Whether the parameters that fused operators update are on this device.
  bool fuses_only_on(torch::Device device) const {
    return std::ranges::all_of(fused_,
                               [&](const Part& part) { return part.parameter.device() == device; });
  }
  // The groups with the parameters that do not fit, or with their masters.
  std::vector<OptimizerParamGroup> take_rest() { return std::move(rest_); }
  const std::vector<MasterOf>& masters_of_rest() const { return masters_of_rest_; }
  // After the masters of the rest have been updated.
  void round_rest() {
    if (!masters_of_rest_.empty()) round_masters(masters_of_rest_);
  }

  // Before and after libtorch's step: it reads the state beside the parameters, and makes it there.
  void bring_state_of_rest() {
    if (means_.host == nullptr || !has_rest_) return;
    means_.host->await();
    for_each_state_of_rest([](const torch::Tensor& parameter, torch::Tensor& tensor) {
      if (tensor.defined()) tensor = tensor.to(parameter.device());
    });
  }
  void offload_state_of_rest() {
    if (means_.file == nullptr && means_.host == nullptr) return;
    for_each_state_of_rest([&](const torch::Tensor& parameter, torch::Tensor& tensor) {
      tensor = offloaded(tensor, parameter, means_.file, means_.host);
    });
  }

  // Whether updating some parameters before the others makes sense and does no
  // harm. A sparse gradient may be refused, which must happen before any update.
  bool can_be_split() const {
    return !(one_pass_.empty() && fused_.empty()) && !shares_memory() && !has_sparse_gradient_ &&
           !rest_shares_storage();
  }

  // Updates all parameters that fit, except those that were updated before. The last part of a
  // step.
  void update_all() {
    update_in_one_pass(left_of(one_pass_));
    update_by_fused_operators(left_of(fused_));
    if (means_.file != nullptr) means_.file->finish_windows();
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

  // The kernels of a step for a graph, without what the host notes. Returns the parameters. See
  // Note [Steps in graphs].
  std::vector<torch::Tensor> capture(const torch::Tensor& flag, const DeviceNumbers& numbers) {
    if (shares_memory() || has_rest() || !one_pass_.empty() ||
        !fuses_only_on(numbers.steps.device())) {
      throw RuntimeError(
          "the optimizer cannot update all parameters by ATen's fused operators: some share "
          "memory, are on another device, or have gradients or state of another type or layout");
    }
    std::vector<torch::Tensor> parameters;
    for (const auto& part : fused_) {
      if (has_state_on_host(part)) {
        throw RuntimeError("the optimizer's state is on the host, where a graph cannot read it");
      }
      if (!can_be_captured(part) || part.number_of_step != fused_.front().number_of_step) {
        throw RuntimeError("the optimizer has not updated all parameters equally often");
      }
      parameters.push_back(part.parameter);
    }
    flag_ = flag;
    numbers_ = numbers;
    numbers_.steps.add_(1);
    if (flag.defined()) numbers_.steps.sub_(flag);
    update_by_fused_operators(std::exchange(fused_, {}));
    return parameters;
  }
  // Notes what the parts of capture() have left out.
  static void note_replay(torch::optim::Optimizer& optimizer, MasterWeights* masters,
                          const torch::Tensor& parameter) {
    Method::finish(parameter, find_state<typename Method::State>(optimizer, parameter));
    if (masters != nullptr) masters->note_rounded(parameter);
  }

 private:
  using Part = StepPart<Method>;

  // A first step has no state, or begins it.
  static bool can_be_captured(const Part& part) {
    return part.state != nullptr || !Method::has_state(*part.options);
  }

  template <class Use>
  void for_each_state_of_rest(const Use& use) {
    for (const auto& parameter : parameters_of_rest_) {
      auto* const state = find_state<typename Method::State>(optimizer_, parameter);
      if (state == nullptr) continue;
      Method::for_each_tensor(*state, [&](torch::Tensor& tensor) { use(parameter, tensor); });
    }
  }

  // Whether the order of libtorch's updates and ours could matter.
  bool rest_shares_storage() const {
    if (!has_rest_) return false;
    std::unordered_set<const c10::StorageImpl*> fitting;
    for (const auto* parts : {&one_pass_, &fused_}) {
      for (const auto& part : *parts) {
        fitting.insert(part.parameter.storage().unsafeGetStorageImpl());
      }
    }
    const auto shares = [&](const torch::Tensor& parameter) {
      return parameter.has_storage() &&
             fitting.contains(parameter.storage().unsafeGetStorageImpl());
    };
    return std::ranges::any_of(masters_of_rest_, shares, &MasterOf::parameter) ||
           std::ranges::any_of(rest_, [&](const OptimizerParamGroup& group) {
             return std::ranges::any_of(group.params(), shares);
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
    if (parts.empty()) return;
    for (auto& part : parts) {
      create_state(part);
      const auto& grad = part.parameter.grad();
      const auto* const gradient = grad.scalar_type() == torch::kFloat32 ? floats(grad) : nullptr;
      part.arrays = Method::arrays(*part.options, floats(part.values), gradient, part.state);
    }
    OnePass<Method>(*means_.rules, means_.file).update(parts);
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

  bool go_together(const Part& a, const Part& b) const {
    return a.options == b.options && has_state_on_host(a) == has_state_on_host(b) &&
           a.number_of_step == b.number_of_step && same_tensors(a.earlier_flags, b.earlier_flags) &&
           a.parameter.device() == b.parameter.device() &&
           a.parameter.scalar_type() == b.parameter.scalar_type();
  }

  // Parts of one type: all of them have masters, or none.
  void run_fused(const std::vector<Part>& parts) {
    if (has_state_on_host(parts.front())) {
      run_fused_in_windows(parts);
    } else {
      auto lists = lists_like(parts.front());
      for (const auto& part : parts) {
        lists.parameters.push_back(part.values);
        lists.gradients.push_back(part.parameter.grad());
        Method::append_state(state_tensors(*part.options, part.state), lists);
      }
      run_fused(std::move(lists), parts.front());
    }
    // In a capture, the host notes nothing. Otherwise it notes new versions, which masters note
    // when they are rounded.
    if (!numbers_.steps.defined()) {
      for (const auto& part : parts) Method::finish(part.parameter, part.state);
    }
    if (parts.front().has_master()) round_masters(parts);
  }

  FusedLists lists_like(const Part& part) const {
    FusedLists lists;
    lists.skip = flag_;
    lists.earlier_skips = part.earlier_flags;
    lists.learning_rate = numbers_.learning_rate;
    lists.step_number = numbers_.steps;
    return lists;
  }

  // `like`: any of the parts.
  static void run_fused(FusedLists lists, const Part& like) {
    if (like.has_master()) lists.gradients = in_float32(lists);
    Method::run_fused(lists, *like.options, like.number_of_step);
  }

  // See Note [State on the host].
  bool has_state_on_host(const Part& part) const {
    if (means_.host == nullptr) return false;
    const auto tensors = state_tensors(*part.options, part.state);
    return !tensors.empty() && tensors.front().is_cpu() && !part.parameter.is_cpu();
  }

  void run_fused_in_windows(const std::vector<Part>& parts) {
    const auto pieces = cut_into_windows(parts, means_.host->window());
    std::vector<HostWindow> windows;
    std::vector<std::vector<std::vector<torch::Tensor>>> state;  // by window, piece and tensor
    for (const auto& of_window : pieces) {
      auto& window = windows.emplace_back();
      auto& staged = state.emplace_back(of_window.size());
      for (std::size_t i = 0; i < of_window.size(); ++i) {
        const auto& [part, first, count] = of_window[i];
        const auto on_host = state_tensors(*part->options, part->state);
        staged[i].resize(on_host.size());
        for (std::size_t k = 0; k < on_host.size(); ++k) {
          window.push_back({as_vector(on_host[k]).narrow(0, first, count), &staged[i][k]});
        }
      }
    }
    means_.host->run_windows(parts.front().parameter.device(), windows, [&](std::size_t window) {
      auto lists = lists_like(parts.front());
      for (std::size_t i = 0; i < pieces[window].size(); ++i) {
        const auto& [part, first, count] = pieces[window][i];
        lists.parameters.push_back(as_vector(part->values).narrow(0, first, count));
        lists.gradients.push_back(as_vector(part->parameter.grad()).narrow(0, first, count));
        Method::append_state(state[window][i], lists);
      }
      run_fused(std::move(lists), parts.front());
    });
  }

  static std::vector<torch::Tensor> in_float32(const FusedLists& lists) {
    std::vector<torch::Tensor> gradients;
    for (const auto& values : lists.parameters) gradients.push_back(torch::empty_like(values));
    torch_compat::copy_each(gradients, lists.gradients);
    return gradients;
  }

  // Of a list of Part or MasterOf.
  template <class List>
  void round_masters(const List& list) {
    std::vector<torch::Tensor> parameters;
    for (const auto& element : list) parameters.push_back(element.parameter);
    means_.masters->round_into(parameters);
  }

  void create_state(Part& part) {
    if (part.state != nullptr) return;
    part.state = Method::create_state(optimizer_, *part.options, part.parameter, part.values);
  }

  void sort(OptimizerParamGroup& group) {
    const auto& options = static_cast<const typename Method::Options&>(group.options());
    std::vector<torch::Tensor> others;
    for (const auto& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      auto* state = find_state<typename Method::State>(optimizer_, parameter);
      const auto number = Method::number_of_step(state);
      const auto update = Method::update(options, state);
      listed_twice_ = !listed_.insert(parameter.unsafeGetTensorImpl()).second || listed_twice_;
      auto values = means_.masters == nullptr ? parameter
                                              : means_.masters->values_before_comparison(parameter);
      const auto tensors = state_tensors(options, state);
      if (!values.is_same(parameter)) require_float32(tensors);
      if (means_.rules != nullptr && update && Method::fits(options) &&
          fit_one_pass(parameter, values, tensors)) {
        one_pass_.push_back({parameter, values, &options, state, number, *update, {}});
        remember_memory(parameter, tensors);
        continue;
      }
      if (means_.masters != nullptr) values = means_.masters->values_of(parameter);
      if (kHasFusedUpdates && means_.fuses(parameter.device().type()) &&
          can_be_fused(values, tensors, means_.host != nullptr) && can_be_fused(parameter, {}) &&
          can_be_fused(owner_of_gradient(parameter, values), {parameter.grad()})) {
        fused_.push_back({parameter, values, &options, state, number, {}, {}, /*is_fused=*/true});
        remember_memory(parameter, tensors);
      } else {
        others.push_back(values);
        parameters_of_rest_.push_back(parameter);
        if (!values.is_same(parameter)) masters_of_rest_.push_back({parameter, values});
        has_sparse_gradient_ = has_sparse_gradient_ || parameter.grad().layout() != torch::kStrided;
      }
    }
    has_rest_ = has_rest_ || !others.empty();
    rest_.emplace_back(std::move(others), group.options().clone());
  }

  static std::vector<torch::Tensor> state_tensors(const typename Method::Options& options,
                                                  const typename Method::State* state) {
    return state == nullptr ? std::vector<torch::Tensor>{} : Method::used(options, *state);
  }

  static void require_float32(const std::vector<torch::Tensor>& state) {
    if (std::ranges::all_of(state, [](const auto& tensor) {
          return !tensor.defined() || tensor.scalar_type() == torch::kFloat32;
        })) {
      return;
    }
    throw UsageError(
        "the optimizer's state has the type of the weights, but their masters need float32 state; "
        "call keep_masters() before the first step, and load only state that was saved with it");
  }

  // A parameter with a master has a gradient of its own type, or of the master's.
  static const torch::Tensor& owner_of_gradient(const torch::Tensor& parameter,
                                                const torch::Tensor& values) {
    return parameter.grad().scalar_type() == values.scalar_type() ? values : parameter;
  }

  // A parameter with a master fits if it is bfloat16.
  static bool fit_one_pass(const torch::Tensor& parameter, const torch::Tensor& values,
                           const std::vector<torch::Tensor>& tensors) {
    const auto type = values.is_same(parameter) ? torch::kFloat32 : torch::kBFloat16;
    const auto fits = [&](const torch::Tensor& tensor, torch::ScalarType its_type) {
      return is_plain(tensor, its_type) && same_order(parameter, tensor);
    };
    return is_plain(parameter, type) && fits(values, torch::kFloat32) &&
           fits(parameter.grad(), owner_of_gradient(parameter, values).scalar_type()) &&
           std::ranges::all_of(tensors,
                               [&](const auto& tensor) { return fits(tensor, torch::kFloat32); });
  }

  // Masters share memory with nothing.
  void remember_memory(const torch::Tensor& parameter, const std::vector<torch::Tensor>& state) {
    memory_.add_written(parameter);
    memory_.add_read(parameter.grad());
    for (const auto& tensor : state) memory_.add_written(tensor);
  }

  torch::optim::Optimizer& optimizer_;
  Means means_;
  MemoryRanges memory_;
  std::vector<Part> one_pass_;
  std::vector<Part> fused_;
  std::unordered_map<const c10::TensorImpl*, Part*> places_;  // filled by update()
  std::vector<OptimizerParamGroup> rest_;
  std::vector<MasterOf> masters_of_rest_;
  std::vector<torch::Tensor> parameters_of_rest_;
  std::unordered_set<const c10::TensorImpl*> listed_;
  bool listed_twice_ = false;  // a parameter, even without elements
  bool has_rest_ = false;
  bool has_sparse_gradient_ = false;  // among the rest
  torch::Tensor flag_;
  DeviceNumbers numbers_;  // undefined, except in capture()
};

}  // namespace ddp::optim
