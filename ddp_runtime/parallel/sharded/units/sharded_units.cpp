// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/units/sharded_units.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "ddp_runtime/parallel/sharded/memory/sharded_build.h"
#include "ddp_runtime/parallel/sharded/units/unit_list.h"

namespace ddp {
namespace {

std::string label_of(const std::vector<NamedTensor>& parameters,
                     const std::vector<std::size_t>& members) {
  const auto& first = parameters[members.front()].name;
  return members.size() == 1 ? first
                             : fmt::format("{} to {}", first, parameters[members.back()].name);
}

class UnitMaker {
 public:
  UnitMaker(comm::Group& group, const std::vector<NamedTensor>& parameters, ShardedBuild* build,
            FlatShard::Kept kept, UnitCalls* calls)
      : group_(group), parameters_(parameters), build_(build), kept_(kept), calls_(calls) {}

  // Parameters of different types, and those that get gradients and those that do not, are in
  // different memory.
  void add(const UnitOfModule& unit) {
    auto& added = made_.all.emplace_back();
    added.name = unit.unit.name;
    added.module = unit.module;
    std::map<std::pair<torch::ScalarType, bool>, std::vector<std::size_t>> kinds;
    for (const std::size_t i : unit.unit.parameters) {
      const auto& tensor = parameters_[i].tensor;
      kinds[{tensor.scalar_type(), tensor.requires_grad()}].push_back(i);
    }
    for (const auto& [kind, members] : kinds) {
      add_flat(members);
      added.flats.push_back(made_.flats.size() - 1);
      if (added.name.empty()) added.name = label_of(parameters_, members);
      if (kind.second) {
        for (const std::size_t i : members) train(parameters_[i]);
      } else {
        added.has_frozen_flat = true;
      }
    }
  }

  ShardedUnits take() { return std::move(made_); }

 private:
  void add_flat(const std::vector<std::size_t>& members) {
    std::vector<torch::Tensor> arrays;
    for (const std::size_t i : members) {
      arrays.push_back(parameters_[i].tensor);
      if (build_ != nullptr) build_->make_whole(arrays.back());
    }
    // The values move, but gradient accumulators and their hooks stay with the tensors.
    made_.flats.push_back(std::make_unique<FlatShard>(group_, std::move(arrays), kept_, calls_));
    if (build_ != nullptr) build_->forget_moved();
    made_.first_trained_of.push_back(made_.trained.size());
  }

  void train(const NamedTensor& parameter) {
    made_.trained.push_back({parameter, made_.all.size() - 1, made_.flats.size() - 1,
                             torch::autograd::impl::grad_accumulator(parameter.tensor)});
  }

  comm::Group& group_;
  const std::vector<NamedTensor>& parameters_;
  ShardedBuild* build_;
  FlatShard::Kept kept_;
  UnitCalls* calls_;
  ShardedUnits made_;
};

}  // namespace

FlatShard::Kept kept_with(const ShardOptions& options, const torch::nn::Module& module) {
  if (options.shard == Shard::parameters) return FlatShard::Kept::part;
  if (options.shard != Shard::hybrid) return FlatShard::Kept::whole;
  const bool on_cpu = std::ranges::all_of(
      module.parameters(), [](const torch::Tensor& parameter) { return parameter.is_cpu(); });
  return on_cpu ? FlatShard::Kept::common : FlatShard::Kept::part;
}

bool ShardedUnits::is_trained(std::size_t flat) const {
  const std::size_t first = first_trained_of[flat];
  return first < trained.size() && trained[first].flat == flat;
}

std::string ShardedUnits::name_of(const torch::Tensor& parameter) const {
  const auto named = std::ranges::find_if(
      trained, [&](const Trained& known) { return known.parameter.tensor.is_same(parameter); });
  return named == trained.end() ? "a frozen parameter"
                                : fmt::format("parameter '{}'", named->parameter.name);
}

ShardedUnits make_sharded_units(comm::Group& group, const torch::nn::Module& module,
                                const std::vector<NamedTensor>& parameters,
                                const ShardOptions& options, FlatShard::Kept kept,
                                UnitCalls* calls) {
  UnitMaker maker(group, parameters, options.build, kept, calls);
  for (const auto& unit : units_of(module, parameters, options, kept)) maker.add(unit);
  return maker.take();
}

BucketPlan plan_reductions(const ShardedUnits& units, const UnitOrder::Units& calls) {
  UnitOrder::Units order;
  for (auto unit = calls.rbegin(); unit != calls.rend(); ++unit) {
    if (*unit != ShardedUnits::kRoot && std::ranges::find(order, *unit) == order.end()) {
      order.push_back(*unit);
    }
  }
  for (std::size_t unit = units.all.size(); unit-- > 0;) {
    if (std::ranges::find(order, unit) == order.end()) order.push_back(unit);
  }
  BucketPlan plan;
  plan.bucket_of.resize(units.trained.size());
  for (const std::size_t unit : order) {
    for (const std::size_t flat : units.all[unit].flats) {
      std::vector<std::size_t> members;
      for (std::size_t i = 0; i < units.trained.size(); ++i) {
        if (units.trained[i].flat == flat) members.push_back(i);
      }
      if (members.empty()) continue;
      for (const std::size_t i : members) plan.bucket_of[i] = plan.buckets.size();
      plan.buckets.push_back(std::move(members));
    }
  }
  return plan;
}

}  // namespace ddp
