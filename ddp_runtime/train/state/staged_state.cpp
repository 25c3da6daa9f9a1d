// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/staged_state.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace ddp::train {
namespace {

constexpr const char* kCount = "step";

std::string last_part(const std::string& name) {
  return name.substr(name.rfind('/') + 1);
}

// Of a parameter that some rank has.
struct KnownField {
  torch::ScalarType type = torch::kFloat32;
  std::int64_t step = 0;  // for the field "step"
};

}  // namespace

StagedState::StagedState(comm::Group& group, torch::optim::Optimizer& optimizer,
                         const StageResidence& residence)
    : group_(group),
      optimizer_(optimizer),
      residence_(residence),
      fields_(state_fields_of(optimizer)) {}

std::vector<StateArray> StagedState::arrays(const std::vector<NamedTensor>& parameters) const {
  const torch::NoGradGuard no_grad;
  std::vector<std::map<std::string, torch::Tensor>> mine(parameters.size());
  auto said = nlohmann::json::array();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!residence_.is_here(parameters[i].tensor)) continue;
    std::vector<NamedTensor> fields;
    fields_->append(optimizer_, parameters[i], fields);
    for (const auto& [name, tensor] : fields) {
      const auto field = last_part(name);
      const std::int64_t step = field == kCount ? tensor.item<std::int64_t>() : 0;
      said.push_back({i, field, static_cast<int>(tensor.scalar_type()), step});
      mine[i][field] = tensor;
    }
  }
  std::vector<std::map<std::string, KnownField>> known(parameters.size());
  for (const auto& text : group_.all_gather_text(said.dump())) {
    for (const auto& entry : nlohmann::json::parse(text)) {
      known.at(entry.at(0).get<std::size_t>())[entry.at(1).get<std::string>()] = {
          static_cast<torch::ScalarType>(entry.at(2).get<int>()), entry.at(3).get<std::int64_t>()};
    }
  }
  std::vector<StateArray> arrays;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (const auto& [field, its] : known[i]) {
      auto name = parameters[i].name + "/" + field;
      if (field == kCount) {
        arrays.push_back({std::move(name), torch::scalar_tensor(its.step, torch::kInt64)});
      } else {
        arrays.push_back(
            residence_.array_of(std::move(name), mine[i][field], parameters[i].tensor, its.type));
      }
    }
  }
  return arrays;
}

StateArray StagedState::allocate(const NamedTensor& parameter, const std::string& field) {
  auto name = parameter.name + "/" + field;
  if (!fields_->has(field)) return {std::move(name), {}};
  const auto& like = parameter.tensor;
  if (field == kCount) return {std::move(name), torch::zeros({}, torch::kInt64)};
  torch::Tensor values;
  if (residence_.is_here(like)) values = fields_->allocate(optimizer_, like, field, like);
  // A scalar has no rows that another rank could read.
  if (!values.defined() && (like.dim() == 0 || like.numel() == 0)) {
    return {std::move(name), torch::zeros(like.sizes(), like.options().requires_grad(false))};
  }
  return residence_.array_of(std::move(name), values, like, like.scalar_type());
}

void StagedState::set_step(const torch::Tensor& parameter, std::int64_t step) {
  if (residence_.is_here(parameter)) fields_->set_step(optimizer_, parameter, step);
}

}  // namespace ddp::train
