// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/user_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/errors.h"

namespace ddp::train {

void UserState::require_new(const std::string& name) const {
  const auto is_it = [&](const auto& other) { return other.name == name; };
  if (name.empty() || std::any_of(tensors_.begin(), tensors_.end(), is_it) ||
      std::any_of(rows_.begin(), rows_.end(), is_it) ||
      std::any_of(values_.begin(), values_.end(), is_it)) {
    throw UsageError(
        fmt::format("the name '{}' for a user's value in checkpoints is {}", name,
                    name.empty() ? "empty" : "taken; give each tensor and value its own name"));
  }
}

void UserState::add(const std::string& name, const torch::Tensor& tensor) {
  require_new(name);
  if (!tensor.defined()) {
    throw UsageError(fmt::format("the tensor '{}' for checkpoints is not defined", name));
  }
  tensors_.push_back({name, tensor.detach()});
}

void UserState::add_rows(const std::string& name, StateArray rows) {
  require_new(name);
  rows.name = name;
  rows_.push_back(std::move(rows));
}

void UserState::add(const std::string& name, std::function<nlohmann::json()> get,
                    std::function<void(const nlohmann::json&)> set) {
  require_new(name);
  values_.push_back({name, std::move(get), std::move(set)});
}

nlohmann::json UserState::values() const {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& value : values_) all[value.name] = value.get();
  return all;
}

void UserState::require_fit(const nlohmann::json& values) const {
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  for (const auto& value : values_) {
    if (!values.contains(value.name)) missing.push_back(value.name);
  }
  for (const auto& [name, ignored] : values.items()) {
    const auto is_it = [&name = name](const Value& value) { return value.name == name; };
    if (std::none_of(values_.begin(), values_.end(), is_it)) unexpected.push_back(name);
  }
  if (missing.empty() && unexpected.empty()) return;
  throw UsageError(fmt::format(
      "the checkpoint does not match the program's own values (missing in the "
      "checkpoint: {}; not added by the program: "
      "{}); add the same values as the run that saved it",
      missing.empty() ? "none" : fmt::format("'{}'", fmt::join(missing, "', '")),
      unexpected.empty() ? "none" : fmt::format("'{}'", fmt::join(unexpected, "', '"))));
}

void UserState::restore(const nlohmann::json& values) const {
  for (const auto& value : values_) {
    try {
      value.set(values.at(value.name));
    } catch (const std::exception& e) {
      throw UsageError(fmt::format("the value '{}' of the checkpoint cannot be restored: {}",
                                   value.name, e.what()));
    }
  }
}

}  // namespace ddp::train
