// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/optimizer_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/errors.h"

namespace ddp::train {
namespace {

std::vector<NamedTensor> those_of(const torch::optim::Optimizer& optimizer,
                                  const std::vector<NamedTensor>& parameters) {
  std::unordered_set<const c10::TensorImpl*> updated;
  for (const auto& group : optimizer.param_groups()) {
    for (const auto& p : group.params()) updated.insert(p.unsafeGetTensorImpl());
  }
  auto found = parameters;
  std::erase_if(found, [&](const NamedTensor& p) {
    return !updated.contains(p.tensor.unsafeGetTensorImpl());
  });
  return found;
}

}  // namespace

OptimizerStates::OptimizerStates(const std::vector<torch::optim::Optimizer*>& optimizers,
                                 const std::vector<NamedTensor>& parameters) {
  if (optimizers.empty()) throw UsageError("the state of a training needs an optimizer");
  // One optimizer may be made before its parameters are known by name, such as those frozen now.
  if (optimizers.size() == 1) {
    states_.push_back(std::make_unique<OptimizerState>(*optimizers.front(), parameters));
    return;
  }
  for (auto* const optimizer : optimizers) {
    auto own = those_of(*optimizer, parameters);
    for (const auto& parameter : own) {
      if (owners_.emplace(parameter.name, states_.size()).second) continue;
      throw UsageError(fmt::format(
          "two optimizers update the parameter '{}', so a checkpoint cannot tell whose state it "
          "holds; give each optimizer its own parameters",
          parameter.name));
    }
    states_.push_back(std::make_unique<OptimizerState>(*optimizer, std::move(own)));
  }
}

void OptimizerStates::require_known() const {
  for (const auto& state : states_) state->require_known();
}

std::vector<NamedTensor> OptimizerStates::tensors() const {
  std::vector<NamedTensor> all;
  for (const auto& state : states_) {
    for (auto& tensor : state->tensors()) all.push_back(std::move(tensor));
  }
  return all;
}

// The first one throws for a parameter that none has.
std::size_t OptimizerStates::owner_of(const std::string& name) const {
  const auto found = owners_.find(name.substr(0, name.rfind('/')));
  return found == owners_.end() ? 0 : found->second;
}

std::vector<NamedTensor> OptimizerStates::allocate(std::span<const std::string> names) {
  std::vector<NamedTensor> all(names.size());
  for (std::size_t i = 0; i < states_.size(); ++i) {
    std::vector<std::string> own;
    std::vector<std::size_t> places;
    for (std::size_t n = 0; n < names.size(); ++n) {
      if (owner_of(names[n]) != i) continue;
      own.push_back(names[n]);
      places.push_back(n);
    }
    auto tensors = states_[i]->allocate(own);
    for (std::size_t k = 0; k < places.size(); ++k) all[places[k]] = std::move(tensors[k]);
  }
  return all;
}

void OptimizerStates::commit(std::span<const NamedTensor> filled) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    std::vector<NamedTensor> own;
    std::copy_if(filled.begin(), filled.end(), std::back_inserter(own),
                 [&](const NamedTensor& t) { return owner_of(t.name) == i; });
    states_[i]->commit(own);
  }
}

}  // namespace ddp::train
