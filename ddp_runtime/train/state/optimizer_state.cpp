// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/optimizer_state.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/train/state/divided_state.h"
#include "ddp_runtime/train/state/staged_state.h"
#include "ddp_runtime/train/state/state_fields.h"

namespace ddp::train {
namespace {

std::unique_ptr<DividedState> divided_by(torch::optim::Optimizer& optimizer) {
  auto* const sharded = dynamic_cast<ShardedOptimizer*>(&optimizer);
  return sharded == nullptr ? nullptr : std::make_unique<DividedState>(*sharded);
}

}  // namespace

OptimizerState::OptimizerState(torch::optim::Optimizer& optimizer,
                               std::vector<NamedTensor> parameters,
                               const std::optional<Resident>& resident)
    : optimizer_(optimizer),
      divided_(divided_by(optimizer)),
      staged_(resident ? std::make_unique<StagedState>(resident->group, optimizer, resident->at)
                       : nullptr),
      parameters_(std::move(parameters)),
      fields_(divided_ ? divided_->fields() : state_fields_of(optimizer)) {
  for (const auto& p : parameters_) by_name_.emplace(p.name, p);
}

OptimizerState::~OptimizerState() = default;

void OptimizerState::require_known() const {
  if (fields_ != nullptr) return;
  throw UsageError(
      "checkpoints can hold the state of SGD, Adam, AdamW, RMSprop and Adagrad, and of classes "
      "derived from them; use one of these, or train without checkpoints");
}

std::vector<StateArray> OptimizerState::arrays() const {
  require_known();
  optim::await_state(divided_ ? divided_->optimizer() : optimizer_);
  if (divided_) return divided_->arrays(parameters_);
  if (staged_) return staged_->arrays(parameters_);
  std::vector<NamedTensor> tensors;
  for (const auto& parameter : parameters_) fields_->append(optimizer_, parameter, tensors);
  std::vector<StateArray> result;
  for (auto& [name, tensor] : tensors) result.push_back({std::move(name), std::move(tensor)});
  return result;
}

const NamedTensor& OptimizerState::parameter_of(const std::string& name, std::string& field) const {
  const std::size_t slash = name.rfind('/');
  const std::string parameter = name.substr(0, slash);
  const auto found = by_name_.find(parameter);
  if (slash == std::string::npos || found == by_name_.end()) {
    throw UsageError(fmt::format(
        "the checkpoint has optimizer state '{}', but the model has no parameter '{}'; "
        "resume with the model it was saved from, or start afresh in another --checkpoint-dir",
        name, parameter));
  }
  field = name.substr(slash + 1);
  return found->second;
}

// What the optimizer updates.
torch::Tensor OptimizerState::values_of(const torch::Tensor& parameter) const {
  auto* const masters = optim::masters_of(optimizer_);
  return masters == nullptr ? parameter : masters->values_of(parameter);
}

StateArray OptimizerState::allocate(const NamedTensor& parameter, const std::string& field) {
  if (divided_) return divided_->allocate(parameter, field);
  if (staged_) return staged_->allocate(parameter, field);
  return {parameter.name + "/" + field,
          fields_->allocate(optimizer_, parameter.tensor, field, values_of(parameter.tensor))};
}

std::vector<StateArray> OptimizerState::allocate(std::span<const std::string> names) {
  require_known();
  const torch::NoGradGuard no_grad;
  optim::await_state(divided_ ? divided_->optimizer() : optimizer_);
  (divided_ ? divided_->optimizer() : optimizer_).state().clear();
  std::vector<StateArray> result;
  for (const auto& name : names) {
    std::string field;
    const NamedTensor& parameter = parameter_of(name, field);
    auto array = allocate(parameter, field);
    if (!array.tensor.defined()) {
      throw UsageError(fmt::format(
          "the checkpoint has optimizer state '{}', which this optimizer does not have; resume "
          "with the optimizer it was saved from, or start afresh in another --checkpoint-dir",
          name));
    }
    result.push_back(std::move(array));
  }
  return result;
}

void OptimizerState::commit(std::span<const StateArray> filled) {
  require_known();
  for (const auto& array : filled) {
    std::string field;
    const torch::Tensor& parameter = parameter_of(array.name, field).tensor;
    if (field != "step") continue;
    const auto step = array.tensor.item<std::int64_t>();
    if (divided_) {
      divided_->set_step(parameter, step);
    } else if (staged_) {
      staged_->set_step(parameter, step);
    } else {
      fields_->set_step(optimizer_, parameter, step);
    }
  }
}

}  // namespace ddp::train
