// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/whole_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/errors.h"

namespace ddp::train {
namespace {

constexpr const char* kStep = "step";

std::string field_of(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

}  // namespace

WholeState::WholeState(ShardedOptimizer& sharded)
    : sharded_(sharded), fields_(state_fields_of(sharded.shard())) {}

std::vector<NamedTensor> WholeState::my_fields(const NamedTensor& parameter) const {
  std::vector<NamedTensor> mine;
  const auto part = sharded_.part_of(parameter.tensor);
  if (part.defined()) fields_->append(sharded_.shard(), {parameter.name, part}, mine);
  return mine;
}

// By parameter. A rank without rows of a parameter does not know which state it has.
std::vector<std::vector<WholeState::Entry>> WholeState::all_entries(
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
  for (const auto& text : sharded_.group().all_gather_text(mine.dump())) {
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

torch::Tensor WholeState::gather_field(const NamedTensor& parameter, const Entry& entry) const {
  const auto& like = parameter.tensor;
  auto whole = torch::zeros_like(like, like.options().requires_grad(false).dtype(entry.type));
  for (const auto& [name, tensor] : my_fields(parameter)) {
    if (field_of(name) == entry.field) sharded_.rows_in(whole, like).copy_(tensor);
  }
  sharded_.exchange_rows(whole, like);
  return whole;
}

std::vector<NamedTensor> WholeState::gather(const std::vector<NamedTensor>& parameters) const {
  const torch::NoGradGuard no_grad;
  const auto entries = all_entries(parameters);
  std::vector<NamedTensor> gathered;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (const auto& entry : entries[i]) {
      auto tensor = entry.field == kStep ? torch::scalar_tensor(entry.step, torch::kInt64)
                                         : gather_field(parameters[i], entry);
      gathered.push_back({parameters[i].name + "/" + entry.field, std::move(tensor)});
    }
  }
  return gathered;
}

torch::Tensor WholeState::allocate(const torch::Tensor& parameter, const std::string& field) const {
  if (!fields_->has(field)) return {};
  if (field == kStep) return torch::zeros({}, torch::kInt64);
  return torch::zeros_like(parameter).detach();
}

void WholeState::keep_rows(const torch::Tensor& parameter, const std::string& field,
                           const torch::Tensor& whole) {
  const auto part = sharded_.part_of(parameter);
  if (!part.defined()) return;
  const torch::NoGradGuard no_grad;
  if (field == kStep) {
    fields_->set_step(sharded_.shard(), part, whole.item<std::int64_t>());
    return;
  }
  fields_->allocate(sharded_.shard(), part, field, part).copy_(sharded_.rows_in(whole, parameter));
}

}  // namespace ddp::train
