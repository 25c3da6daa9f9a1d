// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/optimizer_state.h"

#include <fmt/format.h>

#include <utility>

#include "base/errors.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/train/state_fields.h"
#include "ddp_runtime/train/whole_state.h"

namespace ddp::train {
namespace {

std::unique_ptr<WholeState> divided_by(torch::optim::Optimizer& optimizer) {
  auto* const sharded = dynamic_cast<ShardedOptimizer*>(&optimizer);
  return sharded == nullptr ? nullptr : std::make_unique<WholeState>(*sharded);
}

}  // namespace

OptimizerState::OptimizerState(torch::optim::Optimizer& optimizer,
                               std::vector<NamedTensor> parameters)
    : optimizer_(optimizer),
      divided_(divided_by(optimizer)),
      parameters_(std::move(parameters)),
      fields_(divided_ ? divided_->fields() : state_fields_of(optimizer)) {
  for (const auto& p : parameters_) by_name_.emplace(p.name, p.tensor);
}

OptimizerState::~OptimizerState() = default;

void OptimizerState::require_known() const {
  if (fields_ != nullptr) return;
  throw UsageError(
      "checkpoints can hold the state of SGD, Adam, AdamW, RMSprop and Adagrad, and of classes "
      "derived from them; use one of these, or train without checkpoints");
}

std::vector<NamedTensor> OptimizerState::tensors() const {
  require_known();
  if (divided_) return divided_->gather(parameters_);
  std::vector<NamedTensor> result;
  for (const auto& parameter : parameters_) fields_->append(optimizer_, parameter, result);
  return result;
}

const torch::Tensor& OptimizerState::parameter_of(const std::string& name,
                                                  std::string& field) const {
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
  const auto* const keeper = dynamic_cast<const optim::KeepsMasters*>(&optimizer_);
  auto* const masters = keeper == nullptr ? nullptr : keeper->masters();
  return masters == nullptr ? parameter : masters->values_of(parameter);
}

std::vector<NamedTensor> OptimizerState::allocate(std::span<const std::string> names) {
  require_known();
  const torch::NoGradGuard no_grad;
  (divided_ ? divided_->optimizer() : optimizer_).state().clear();
  std::vector<NamedTensor> result;
  for (const auto& name : names) {
    std::string field;
    const torch::Tensor& parameter = parameter_of(name, field);
    const auto tensor = divided_
                            ? divided_->allocate(parameter, field)
                            : fields_->allocate(optimizer_, parameter, field, values_of(parameter));
    if (!tensor.defined()) {
      throw UsageError(fmt::format(
          "the checkpoint has optimizer state '{}', which this optimizer does not have; resume "
          "with the optimizer it was saved from, or start afresh in another --checkpoint-dir",
          name));
    }
    result.push_back({name, tensor});
  }
  return result;
}

void OptimizerState::commit(std::span<const NamedTensor> filled) {
  require_known();
  for (const auto& [name, tensor] : filled) {
    std::string field;
    const torch::Tensor& parameter = parameter_of(name, field);
    if (divided_) {
      divided_->keep_rows(parameter, field, tensor);
      continue;
    }
    if (field == "step") fields_->set_step(optimizer_, parameter, tensor.item<std::int64_t>());
  }
}

}  // namespace ddp::train
