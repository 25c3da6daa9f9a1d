// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/optimizer_state.h"

#include <fmt/format.h>

#include <memory>

#include "base/errors.h"
#include "ddp_runtime/optim/master_weights.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp::train {
namespace {

using torch::optim::AdamParamState;
using torch::optim::AdamWParamState;
using torch::optim::SGDParamState;

template <class State>
State* find_state(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  const auto found = optimizer.state().find(torch_compat::state_key(parameter));
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

template <class State>
State& state_of(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  auto& slot = optimizer.state()[torch_compat::state_key(parameter)];
  if (!slot) slot = std::make_unique<State>();
  return static_cast<State&>(*slot);
}

void append_sgd(torch::optim::Optimizer& optimizer, const NamedTensor& p,
                std::vector<NamedTensor>& out) {
  const auto* state = find_state<SGDParamState>(optimizer, p.tensor);
  if (state == nullptr || !state->momentum_buffer().defined()) return;
  out.push_back({p.name + "/momentum_buffer", state->momentum_buffer()});
}

template <class State>
void append_adam(torch::optim::Optimizer& optimizer, const NamedTensor& p,
                 std::vector<NamedTensor>& out) {
  const auto* state = find_state<State>(optimizer, p.tensor);
  if (state == nullptr) return;
  out.push_back({p.name + "/exp_avg", state->exp_avg()});
  out.push_back({p.name + "/exp_avg_sq", state->exp_avg_sq()});
  if (state->max_exp_avg_sq().defined()) {  // with AMSGrad
    out.push_back({p.name + "/max_exp_avg_sq", state->max_exp_avg_sq()});
  }
  out.push_back({p.name + "/step", torch::scalar_tensor(state->step(), torch::kInt64)});
}

// Returns an undefined tensor if the optimizer does not have this field.
torch::Tensor allocate_sgd(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                           const std::string& field, const torch::Tensor& values) {
  if (field != "momentum_buffer") return {};
  auto buffer = torch::zeros_like(values).detach();
  state_of<SGDParamState>(optimizer, parameter).momentum_buffer(buffer);
  return buffer;
}

template <class State>
torch::Tensor allocate_adam(torch::optim::Optimizer& optimizer, const torch::Tensor& parameter,
                            const std::string& field, const torch::Tensor& values) {
  auto& state = state_of<State>(optimizer, parameter);
  if (field == "step") return torch::zeros({}, torch::kInt64);
  auto buffer = torch::zeros_like(values).detach();
  if (field == "exp_avg") {
    state.exp_avg(buffer);
  } else if (field == "exp_avg_sq") {
    state.exp_avg_sq(buffer);
  } else if (field == "max_exp_avg_sq") {
    state.max_exp_avg_sq(buffer);
  } else {
    return {};
  }
  return buffer;
}

}  // namespace

OptimizerState::OptimizerState(torch::optim::Optimizer& optimizer,
                               std::vector<NamedTensor> parameters)
    : optimizer_(optimizer), parameters_(std::move(parameters)), kind_(Kind::unknown) {
  if (dynamic_cast<torch::optim::SGD*>(&optimizer) != nullptr) {
    kind_ = Kind::sgd;
  } else if (dynamic_cast<torch::optim::AdamW*>(&optimizer) != nullptr) {
    kind_ = Kind::adamw;
  } else if (dynamic_cast<torch::optim::Adam*>(&optimizer) != nullptr) {
    kind_ = Kind::adam;
  }
  for (const auto& p : parameters_) by_name_.emplace(p.name, p.tensor);
}

void OptimizerState::require_known() const {
  if (kind_ != Kind::unknown) return;
  throw UsageError(
      "checkpoints can hold the state of SGD, Adam and AdamW, and of classes derived from them; "
      "use "
      "one of these, or train without checkpoints");
}

std::vector<NamedTensor> OptimizerState::tensors() const {
  require_known();
  std::vector<NamedTensor> result;
  for (const auto& parameter : parameters_) {
    switch (kind_) {
      case Kind::sgd:
        append_sgd(optimizer_, parameter, result);
        break;
      case Kind::adam:
        append_adam<AdamParamState>(optimizer_, parameter, result);
        break;
      case Kind::adamw:
        append_adam<AdamWParamState>(optimizer_, parameter, result);
        break;
      case Kind::unknown:
        break;
    }
  }
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

torch::Tensor OptimizerState::allocate(const torch::Tensor& parameter, const std::string& field) {
  const auto values = values_of(parameter);
  switch (kind_) {
    case Kind::sgd:
      return allocate_sgd(optimizer_, parameter, field, values);
    case Kind::adam:
      return allocate_adam<AdamParamState>(optimizer_, parameter, field, values);
    case Kind::adamw:
      return allocate_adam<AdamWParamState>(optimizer_, parameter, field, values);
    case Kind::unknown:
      break;
  }
  return {};
}

std::vector<NamedTensor> OptimizerState::allocate(std::span<const std::string> names) {
  require_known();
  const torch::NoGradGuard no_grad;
  optimizer_.state().clear();
  std::vector<NamedTensor> result;
  for (const auto& name : names) {
    std::string field;
    const torch::Tensor& parameter = parameter_of(name, field);
    const auto tensor = allocate(parameter, field);
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
  if (kind_ == Kind::sgd) return;
  for (const auto& [name, tensor] : filled) {
    std::string field;
    const torch::Tensor& parameter = parameter_of(name, field);
    if (field != "step") continue;
    const auto step = tensor.item<std::int64_t>();
    if (kind_ == Kind::adam) state_of<AdamParamState>(optimizer_, parameter).step(step);
    if (kind_ == Kind::adamw) state_of<AdamWParamState>(optimizer_, parameter).step(step);
  }
}

}  // namespace ddp::train
