// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/optimizer_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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
                                 const std::vector<NamedTensor>& parameters,
                                 const std::optional<Resident>& resident) {
  if (optimizers.empty()) throw UsageError("the state of a training needs an optimizer");
  // One optimizer may be made before its parameters are known by name, such as those frozen now.
  if (optimizers.size() == 1) {
    states_.push_back(std::make_unique<OptimizerState>(*optimizers.front(), parameters, resident));
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
    states_.push_back(std::make_unique<OptimizerState>(*optimizer, std::move(own), resident));
  }
}

void OptimizerStates::require_known() const {
  for (const auto& state : states_) state->require_known();
}

bool OptimizerStates::any_divided() const noexcept {
  return std::ranges::any_of(states_, [](const auto& state) { return state->is_divided(); });
}

std::vector<StateArray> OptimizerStates::arrays() const {
  std::vector<StateArray> all;
  for (const auto& state : states_) {
    for (auto& array : state->arrays()) all.push_back(std::move(array));
  }
  return all;
}

// The first one throws for a parameter that none has.
std::size_t OptimizerStates::owner_of(const std::string& name) const {
  const auto found = owners_.find(name.substr(0, name.rfind('/')));
  return found == owners_.end() ? 0 : found->second;
}

std::vector<StateArray> OptimizerStates::allocate(std::span<const std::string> names, Held held) {
  std::vector<StateArray> all(names.size());
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (states_[i]->is_divided() != (held == Held::divided)) continue;
    std::vector<std::string> own;
    std::vector<std::size_t> places;
    for (std::size_t n = 0; n < names.size(); ++n) {
      if (owner_of(names[n]) != i) continue;
      own.push_back(names[n]);
      places.push_back(n);
    }
    auto arrays = states_[i]->allocate(own);
    for (std::size_t k = 0; k < places.size(); ++k) all[places[k]] = std::move(arrays[k]);
  }
  std::erase_if(all, [](const StateArray& array) { return array.name.empty(); });
  return all;
}

void OptimizerStates::commit(std::span<const StateArray> filled) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    std::vector<StateArray> own;
    std::ranges::copy_if(filled, std::back_inserter(own),
                         [&](const StateArray& array) { return owner_of(array.name) == i; });
    if (!own.empty()) states_[i]->commit(own);
  }
}

}  // namespace ddp::train
