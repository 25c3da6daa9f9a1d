// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/replica/wrapped_parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "base/errors.h"

namespace ddp {
namespace {

[[noreturn]] void throw_changed(const std::string& name, const std::string& how) {
  throw RuntimeError(fmt::format(
      "parameter '{}' {} after DistributedDataParallel was created, which therefore cannot "
      "average its gradient; change the model first, then create the "
      "DistributedDataParallel and the optimizer again",
      name, how));
}

const NamedTensor* find_parameter(std::span<const NamedTensor> parameters,
                                  const torch::Tensor& tensor) {
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [&](const NamedTensor& p) { return p.tensor.is_same(tensor); });
  return found == parameters.end() ? nullptr : &*found;
}

}  // namespace

WrappedParameters::WrappedParameters(const torch::nn::Module& module, const IgnoredTensors& ignored,
                                     std::vector<NamedTensor> parameters, bool may_freeze)
    : module_(module),
      ignored_(ignored),
      parameters_(std::move(parameters)),
      may_freeze_(may_freeze) {
  for (const auto& [name, tensor] : parameters_) {
    facts_.push_back(
        {tensor.requires_grad(), tensor.scalar_type(), tensor.device(), tensor.sizes().vec()});
  }
}

void WrappedParameters::require_as_wrapped() const {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    const Facts& then = facts_[i];
    if (tensor.scalar_type() != then.type) {
      throw_changed(name, fmt::format("was converted from {} to {}", c10::toString(then.type),
                                      c10::toString(tensor.scalar_type())));
    }
    if (tensor.device() != then.device) {
      throw_changed(
          name, fmt::format("was moved from {} to {}", then.device.str(), tensor.device().str()));
    }
    if (tensor.sizes() != torch::IntArrayRef(then.sizes)) {
      throw_changed(name, fmt::format("was reshaped from [{}] to [{}]", fmt::join(then.sizes, ", "),
                                      fmt::join(tensor.sizes(), ", ")));
    }
    if (tensor.requires_grad() == then.wants_gradient) continue;
    if (!then.wants_gradient) throw_changed(name, "was unfrozen");
    if (!may_freeze_) throw_changed(name, "was frozen");
  }
}

void WrappedParameters::require_same_list() const {
  const auto now = ignored_.removed_from(named_parameters(module_));
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (i < parameters_.size() && now[i].tensor.is_same(parameters_[i].tensor)) continue;
    if (find_parameter(parameters_, now[i].tensor) == nullptr) {
      throw_changed(now[i].name, "was added");
    }
  }
  for (const auto& parameter : parameters_) {
    if (now.size() >= parameters_.size()) break;
    if (find_parameter(now, parameter.tensor) == nullptr) {
      throw_changed(parameter.name, "was removed from the module");
    }
  }
}

}  // namespace ddp
