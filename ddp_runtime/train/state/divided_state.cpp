// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/divided_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "base/errors.h"

namespace ddp::train {
namespace {

constexpr const char* kStep = "step";

std::string field_of(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

}  // namespace

DividedState::DividedState(ShardedOptimizer& sharded)
    : sharded_(sharded), fields_(state_fields_of(sharded.shard())) {}

std::vector<NamedTensor> DividedState::my_fields(const NamedTensor& parameter) const {
  std::vector<NamedTensor> mine;
  const auto part = sharded_.part_of(parameter.tensor);
  if (part.defined()) fields_->append(sharded_.shard(), {parameter.name, part}, mine);
  return mine;
}

// By parameter. A rank without rows of a parameter does not know which state it has.
std::vector<std::vector<DividedState::Entry>> DividedState::all_entries(
    const std::vector<NamedTensor>& parameters) const {
  auto mine = nlohmann::json::array();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (const auto& [name, tensor] : my_fields(parameters[i])) {
      const auto field = field_of(name);
      const std::int64_t step = field == kStep ? tensor.item<std::int64_t>() : 0;
      mine.push_back({i, field, static_cast<int>(tensor.scalar_type()), step});
    }
  }
  std::vector<std::vector<Entry>> all(parameters.size());
  for (const auto& text : sharded_.sharing().all_gather_text(mine.dump())) {
    for (const auto& entry : nlohmann::json::parse(text)) {
      auto& known = all.at(entry.at(0).get<std::size_t>());
      const auto field = entry.at(1).get<std::string>();
      const Entry its{field, static_cast<torch::ScalarType>(entry.at(2).get<int>()),
                      entry.at(3).get<std::int64_t>()};
      const auto same = std::ranges::find(known, field, &Entry::field);
      if (same == known.end()) {
        known.push_back(its);
      } else if (same->type != its.type || same->step != its.step) {
        throw RuntimeError(fmt::format(
            "the ranks have made different numbers of steps of a ShardedOptimizer: {} and {}, or "
            "have state of different types",
            same->step, its.step));
      }
    }
  }
  return all;
}

StateArray DividedState::divided(StateArray array, const torch::Tensor& parameter) const {
  return with_division(std::move(array), parameter, sharded_.division_of(parameter));
}

StateArray DividedState::array_of(const NamedTensor& parameter, const Entry& entry) const {
  auto mine = no_rows(parameter.tensor, entry.type);
  for (const auto& [name, tensor] : my_fields(parameter)) {
    if (field_of(name) == entry.field) mine = as_rows(tensor, parameter.tensor);
  }
  return divided({parameter.name + "/" + entry.field, mine}, parameter.tensor);
}

std::vector<StateArray> DividedState::arrays(const std::vector<NamedTensor>& parameters) const {
  const torch::NoGradGuard no_grad;
  const auto entries = all_entries(parameters);
  std::vector<StateArray> arrays;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (const auto& entry : entries[i]) {
      if (entry.field == kStep) {
        arrays.push_back({parameters[i].name + "/" + entry.field,
                          torch::scalar_tensor(entry.step, torch::kInt64)});
      } else {
        arrays.push_back(array_of(parameters[i], entry));
      }
    }
  }
  return arrays;
}

StateArray DividedState::allocate(const NamedTensor& parameter, const std::string& field) {
  StateArray array{parameter.name + "/" + field, {}};
  if (!fields_->has(field)) return array;
  const auto& like = parameter.tensor;
  const auto part = sharded_.part_of(like);
  const auto type = sharded_.has_master(like) ? torch::kFloat32 : like.scalar_type();
  if (field == kStep) {
    array.tensor = torch::zeros({}, torch::kInt64);
    return array;
  }
  if (part.defined()) {
    const auto values = sharded_.values_of(like);
    array.tensor = as_rows(fields_->allocate(sharded_.shard(), part, field, values), like);
  } else if (like.dim() == 0 || like.numel() == 0) {
    array.tensor = torch::zeros_like(like, type).detach();
    return array;
  } else {
    array.tensor = no_rows(like, type);
  }
  return divided(std::move(array), like);
}

void DividedState::set_step(const torch::Tensor& parameter, std::int64_t step) {
  const auto part = sharded_.part_of(parameter);
  if (part.defined()) fields_->set_step(sharded_.shard(), part, step);
}

}  // namespace ddp::train
