// SPDX-License-Identifier: Apache-2.0
// How a step is made: in one pass, by fused operators, or, for the rest, by libtorch.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <array>
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
#include "ddp_runtime/optim/parallel_ranges.h"
#include "ddp_runtime/optim/plain_memory.h"
#include "ddp_runtime/optim/skipped_steps.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::optim {

using torch::optim::OptimizerParamGroup;

// Fewer elements are not worth another thread; libtorch's operators use the
// same number.
inline constexpr std::int64_t kGrain = 32768;

// How parameters may be updated, apart from libtorch's step.
struct Means {
  const UpdateRules* rules = nullptr;  // null: not in one pass
  std::function<bool(torch::DeviceType)> fuses = [](torch::DeviceType) {
    return false;
  };                                 // by ATen's fused operators?
  MasterWeights* masters = nullptr;  // null: parameters are updated in their own type
};

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
  struct Part {
    torch::Tensor parameter;
    torch::Tensor values;  // what is updated: its master, or the parameter itself
    const typename Method::Options* options;
    typename Method::State* state;
    std::int64_t number_of_step;
    typename Method::Update update;  // of a part that is updated in one pass, like the arrays
    typename Method::Arrays arrays;
    bool is_fused = false;
    bool updated = false;
    std::vector<torch::Tensor> earlier_flags = {};  // of steps that number_of_step counts

    bool has_master() const { return !values.is_same(parameter); }
  };

  // A first step has no state, or begins it.
  static bool can_be_captured(const Part& part) {
    return part.state != nullptr || !Method::has_state(*part.options);
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
    for (auto& part : parts) {
      create_state(part);
      const auto* const gradient = part.has_master() ? nullptr : floats(part.parameter.grad());
      part.arrays = Method::arrays(*part.options, floats(part.values), gradient, part.state);
    }
    std::vector<std::int64_t> ends;
    std::int64_t end = 0;
    for (const auto& part : parts) ends.push_back(end += part.parameter.numel());
    for_ranges(end, kGrain, [&](std::int64_t first, std::int64_t last) {
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

  void run_fused(const std::vector<Part>& parts) {
    FusedLists lists;
    lists.skip = flag_;
    lists.earlier_skips = parts.front().earlier_flags;
    lists.learning_rate = numbers_.learning_rate;
    lists.step_number = numbers_.steps;
    const auto& options = *parts.front().options;
    for (const auto& part : parts) {
      lists.parameters.push_back(part.values);
      lists.gradients.push_back(part.parameter.grad());
      Method::append_state(options, part.state, lists);
    }
    // Parts of one type: all of them have masters, or none.
    if (parts.front().has_master()) lists.gradients = in_float32(lists);
    Method::run_fused(lists, options, parts.front().number_of_step);
    // In a capture, the host notes nothing. Otherwise it notes new versions, which masters note
    // when they are rounded.
    if (!numbers_.steps.defined()) {
      for (const auto& part : parts) Method::finish(part.parameter, part.state);
    }
    if (parts.front().has_master()) round_masters(parts);
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
          can_be_fused(values, tensors) && can_be_fused(parameter, {parameter.grad()})) {
        fused_.push_back({parameter, values, &options, state, number, {}, {}, /*is_fused=*/true});
        remember_memory(parameter, tensors);
      } else {
        others.push_back(values);
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

  // A parameter with a master fits if it is bfloat16.
  static bool fit_one_pass(const torch::Tensor& parameter, const torch::Tensor& values,
                           const std::vector<torch::Tensor>& tensors) {
    const auto type = values.is_same(parameter) ? torch::kFloat32 : torch::kBFloat16;
    const auto fits = [&](const torch::Tensor& tensor, torch::ScalarType its_type) {
      return is_plain(tensor, its_type) && same_order(parameter, tensor);
    };
    return is_plain(parameter, type) && fits(values, torch::kFloat32) &&
           fits(parameter.grad(), type) && std::ranges::all_of(tensors, [&](const auto& tensor) {
             return fits(tensor, torch::kFloat32);
           });
  }

  // Masters share memory with nothing.
  void remember_memory(const torch::Tensor& parameter, const std::vector<torch::Tensor>& state) {
    memory_.add_written(parameter);
    memory_.add_read(parameter.grad());
    for (const auto& tensor : state) memory_.add_written(tensor);
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
      update_range(part, offset, count);
      first += count;
      ++index;
    }
  }

  void update_range(const Part& part, std::int64_t offset, std::int64_t count) const {
    const auto& rules = *means_.rules;
    if (part.has_master()) return update_range_of_master(part, offset, count);
    Method::run(rules, part.update, from(part.arrays, offset, part.arrays.gradient + offset),
                static_cast<std::size_t>(count));
  }

  // Block by block, so that the gradient in float32 exists only in the cache.
  void update_range_of_master(const Part& part, std::int64_t offset, std::int64_t count) const {
    constexpr std::int64_t kBlock = 4096;
    std::array<float, kBlock> gradient;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const auto& rules = *means_.rules;
    const auto* const gradients = bf16_bits(part.parameter.grad());
    auto* const weights = bf16_bits(part.parameter);
    for (const std::int64_t end = offset + count; offset < end; offset += kBlock) {
      const auto n = static_cast<std::size_t>(std::min(kBlock, end - offset));
      const auto arrays = from(part.arrays, offset, gradient.data());
      rules.widen(gradients + offset, gradient.data(), n);
      rules.adopt(weights + offset, arrays.parameter, n);
      Method::run(rules, part.update, arrays, n);
      rules.round(arrays.parameter, weights + offset, n);
    }
  }

  static Bf16Bits* bf16_bits(const torch::Tensor& tensor) {
    return static_cast<Bf16Bits*>(tensor.data_ptr());
  }

  torch::optim::Optimizer& optimizer_;
  Means means_;
  MemoryRanges memory_;
  std::vector<Part> one_pass_;
  std::vector<Part> fused_;
  std::unordered_map<const c10::TensorImpl*, Part*> places_;  // filled by update()
  std::vector<OptimizerParamGroup> rest_;
  std::vector<MasterOf> masters_of_rest_;
  std::unordered_set<const c10::TensorImpl*> listed_;
  bool listed_twice_ = false;  // a parameter, even without elements
  bool has_rest_ = false;
  bool has_sparse_gradient_ = false;  // among the rest
  torch::Tensor flag_;
  DeviceNumbers numbers_;  // undefined, except in capture()
};

}  // namespace ddp::optim
