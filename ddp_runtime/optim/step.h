// SPDX-License-Identifier: Apache-2.0
// How a step is made: in one pass, by fused operators, or, for the rest, by libtorch.
#pragma once

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ddp_runtime/optim/fused_update.h"
#include "ddp_runtime/optim/methods.h"
#include "ddp_runtime/optim/plain_memory.h"
#include "ddp_runtime/optim/skipped_steps.h"

namespace ddp::optim {

using torch::optim::OptimizerParamGroup;

// Fewer elements are not worth another thread; libtorch's operators use the
// same number.
inline constexpr std::int64_t kGrain = 32768;

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

}  // namespace ddp::optim
