// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/units/unit_list.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "ddp_runtime/parallel/buckets/tensor_buckets.h"

namespace ddp {
namespace {

std::vector<ParameterUse> uses_of(const torch::nn::Module& module,
                                  const std::vector<NamedTensor>& parameters) {
  std::map<const c10::TensorImpl*, std::size_t> indices;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    indices.emplace(parameters[i].tensor.unsafeGetTensorImpl(), i);
  }
  std::vector<ParameterUse> uses;
  const auto add = [&](const std::string& prefix, const torch::nn::Module& part) {
    for (const auto& item : part.named_parameters(/*recurse=*/false)) {
      const auto found = indices.find(item.value().unsafeGetTensorImpl());
      if (found != indices.end()) uses.push_back({prefix + item.key(), found->second});
    }
  };
  add("", module);
  for (const auto& item : module.named_modules({}, /*include_self=*/false)) {
    add(item.key() + ".", *item.value());
  }
  return uses;
}

// Of parameters that are always whole: those that are reduced together, those first that have their
// gradients first.
std::vector<Unit> units_by_size(const std::vector<NamedTensor>& parameters,
                                const BucketLimits& limits) {
  auto buckets = plan_buckets_of(parameters, reverse_order(parameters.size()), limits).buckets;
  std::vector<Unit> units(1);
  for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) {
    std::ranges::sort(*bucket);
    units.push_back({"", std::move(*bucket)});
  }
  return units;
}

}  // namespace

std::vector<UnitOfModule> units_of(const torch::nn::Module& module,
                                   const std::vector<NamedTensor>& parameters,
                                   const ShardOptions& options, FlatShard::Kept kept) {
  std::vector<UnitOfModule> units;
  if (kept != FlatShard::Kept::part) {
    for (auto& unit : units_by_size(parameters, options.data_parallel.buckets)) {
      units.push_back({std::move(unit), nullptr});
    }
    return units;
  }
  std::vector<std::string> names;
  std::map<std::string, const torch::nn::Module*> modules{{"", &module}};
  for (const auto& item : module.named_modules({}, /*include_self=*/false)) {
    names.push_back(item.key());
    modules.emplace(item.key(), item.value().get());
  }
  for (auto& unit : plan_units(names, uses_of(module, parameters), options.units)) {
    const auto* const of_unit = modules.at(unit.name);
    units.push_back({std::move(unit), of_unit});
  }
  return units;
}

}  // namespace ddp
