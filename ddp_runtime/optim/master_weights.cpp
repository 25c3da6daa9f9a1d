// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/master_weights.h"

#include "ddp_runtime/torch_compat.h"

namespace ddp::optim {
namespace {

std::int64_t version_of(const torch::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor._version());
}

// The masters take the weights that were changed without them.
void take_changes(const torch::Tensor& weights, torch::Tensor& values) {
  const auto unchanged = values.to(weights.scalar_type()).eq(weights);
  values.copy_(torch::where(unchanged, values, weights.to(torch::kFloat32)));
}

bool fits(const torch::Tensor& weights, const torch::Tensor& values) {
  return values.defined() && values.sizes() == weights.sizes() &&
         values.device() == weights.device();
}

}  // namespace

bool MasterWeights::are_for(const torch::Tensor& parameter) {
  const auto type = parameter.scalar_type();
  return type == torch::kBFloat16 || type == torch::kHalf;
}

torch::Tensor MasterWeights::values_before_comparison(const torch::Tensor& parameter) {
  if (!are_for(parameter)) return parameter;
  const torch::NoGradGuard no_grad;
  auto& master = masters_[parameter.unsafeGetTensorImpl()];
  if (!fits(parameter, master.values)) {
    master.parameter = parameter;
    master.values = parameter.detach().to(torch::kFloat32);
    if (file_ != nullptr) master.values = file_->moved(master.values);
    note_rounded(parameter);
  }
  return master.values;
}

torch::Tensor MasterWeights::values_of(const torch::Tensor& parameter) {
  auto values = values_before_comparison(parameter);
  if (!are_for(parameter)) return values;
  const torch::NoGradGuard no_grad;
  if (may_have_changed(masters_.at(parameter.unsafeGetTensorImpl()))) {
    take_changes(parameter.detach(), values);
  }
  return values;
}

bool MasterWeights::may_have_changed(const Master& master) {
  const auto& parameter = master.parameter;
  return parameter.is_cpu() || master.version != version_of(parameter) ||
         !master.storage.is_alias_of(parameter.storage());
}

void MasterWeights::round_into(const std::vector<torch::Tensor>& parameters) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> weights;
  std::vector<torch::Tensor> values;
  for (const auto& parameter : parameters) {
    const auto found = masters_.find(parameter.unsafeGetTensorImpl());
    if (found == masters_.end()) continue;
    weights.push_back(parameter);
    values.push_back(found->second.values);
  }
  if (weights.empty()) return;
  torch_compat::copy_each(weights, values);
  for (const auto& weight : weights) note_rounded(weight);
}

void MasterWeights::note_rounded(const torch::Tensor& parameter) {
  const auto found = masters_.find(parameter.unsafeGetTensorImpl());
  if (found == masters_.end()) return;
  found->second.version = version_of(parameter);
  found->second.storage = parameter.storage();
}

MasterWeights* masters_of(const torch::optim::Optimizer& optimizer) {
  const auto* const keeper = dynamic_cast<const KeepsMasters*>(&optimizer);
  return keeper == nullptr ? nullptr : keeper->masters();
}

torch::Tensor state_like(const torch::optim::Optimizer& optimizer, const torch::Tensor& values) {
  const auto* const keeper = dynamic_cast<const KeepsMasters*>(&optimizer);
  if (keeper != nullptr && values.is_cpu() && keeper->state_file() != nullptr) {
    return keeper->state_file()->zeros_like(values);
  }
  if (keeper != nullptr && !values.is_cpu() && keeper->host_state() != nullptr) {
    return HostState::zeros_like(values);
  }
  return torch::zeros_like(values).detach();
}

void await_state(const torch::optim::Optimizer& optimizer) {
  const auto* const keeper = dynamic_cast<const KeepsMasters*>(&optimizer);
  if (keeper != nullptr && keeper->host_state() != nullptr) keeper->host_state()->await();
}

}  // namespace ddp::optim
