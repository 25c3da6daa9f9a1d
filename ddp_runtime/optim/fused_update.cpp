// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/fused_update.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "ddp_runtime/optim/plain_memory.h"

namespace ddp::optim {

bool can_be_fused(const torch::Tensor& parameter, const std::vector<torch::Tensor>& others,
                  bool may_be_on_host) {
  if (parameter.layout() != torch::kStrided || !parameter.is_floating_point() ||
      !parameter.is_non_overlapping_and_dense() || parameter.numel() == 0) {
    return false;
  }
  return std::ranges::all_of(others, [&](const torch::Tensor& other) {
    return other.defined() && other.layout() == torch::kStrided &&
           (other.device() == parameter.device() || (may_be_on_host && other.is_cpu())) &&
           other.scalar_type() == parameter.scalar_type() && other.is_non_overlapping_and_dense() &&
           same_order(parameter, other);
  });
}

#if SLURM_DDP_TORCH_2_4

namespace {

// The operators want equal strides, also where they do not matter: see same_order().
void align_strides(const std::vector<torch::Tensor>& parameters,
                   std::vector<torch::Tensor>& others) {
  for (std::size_t i = 0; i < others.size(); ++i) {
    const auto& parameter = parameters[i];
    if (others[i].strides() == parameter.strides()) continue;
    others[i] = others[i].as_strided(parameter.sizes(), parameter.strides());
  }
}

FusedLists with_equal_strides(FusedLists lists) {
  align_strides(lists.parameters, lists.gradients);
  align_strides(lists.parameters, lists.averages);
  align_strides(lists.parameters, lists.square_averages);
  align_strides(lists.parameters, lists.max_square_averages);
  return lists;
}

// The number of the step where the operators read it: on the device, once for
// each parameter. All parameters share one tensor, which a kernel fills, so
// that the host does not wait.
std::vector<torch::Tensor> steps_on_device(const FusedLists& lists, std::int64_t step) {
  if (lists.step_number.defined()) return {lists.parameters.size(), lists.step_number};
  const auto options =
      torch::TensorOptions(torch::kFloat32).device(lists.parameters.front().device());
  auto number = torch::full({}, static_cast<double>(step), options);
  for (const auto& skipped : lists.earlier_skips) number.sub_(skipped);
  return {lists.parameters.size(), number};
}

std::optional<torch::Tensor> skip_of(const FusedLists& lists) {
  return lists.skip.defined() ? std::optional(lists.skip) : std::nullopt;
}

// Calls `update` with the learning rate where it is: on the device, or in the options.
template <class Options, class Update>
void with_learning_rate(const FusedLists& lists, const Options& options, const Update& update) {
  lists.learning_rate.defined() ? update(lists.learning_rate) : update(options.lr());
}

}  // namespace

void fused_sgd(const FusedLists& given, const torch::optim::SGDOptions& options, bool first) {
  const auto lists = with_equal_strides(given);
  with_learning_rate(lists, options, [&](const auto& rate) {
    at::_fused_sgd_(lists.parameters, lists.gradients, lists.averages, options.weight_decay(),
                    options.momentum(), rate, options.dampening(), options.nesterov(),
                    /*maximize=*/false, first, /*grad_scale=*/{}, skip_of(lists));
  });
}

void fused_adam(const FusedLists& given, const torch::optim::AdamOptions& options,
                std::int64_t step) {
  const auto lists = with_equal_strides(given);
  const auto betas = options.betas();
  with_learning_rate(lists, options, [&](const auto& rate) {
    at::_fused_adam_(lists.parameters, lists.gradients, lists.averages, lists.square_averages,
                     lists.max_square_averages, steps_on_device(lists, step), rate,
                     std::get<0>(betas), std::get<1>(betas), options.weight_decay(), options.eps(),
                     options.amsgrad(), /*maximize=*/false, /*grad_scale=*/{}, skip_of(lists));
  });
}

void fused_adam(const FusedLists& given, const torch::optim::AdamWOptions& options,
                std::int64_t step) {
  const auto lists = with_equal_strides(given);
  const auto betas = options.betas();
  with_learning_rate(lists, options, [&](const auto& rate) {
    at::_fused_adamw_(lists.parameters, lists.gradients, lists.averages, lists.square_averages,
                      lists.max_square_averages, steps_on_device(lists, step), rate,
                      std::get<0>(betas), std::get<1>(betas), options.weight_decay(), options.eps(),
                      options.amsgrad(), /*maximize=*/false, /*grad_scale=*/{}, skip_of(lists));
  });
}

#else

void fused_sgd(const FusedLists&, const torch::optim::SGDOptions&, bool) {}
void fused_adam(const FusedLists&, const torch::optim::AdamOptions&, std::int64_t) {}
void fused_adam(const FusedLists&, const torch::optim::AdamWOptions&, std::int64_t) {}

#endif

}  // namespace ddp::optim
