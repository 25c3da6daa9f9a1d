// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/divided_parameters.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "ddp_runtime/parallel/sharded/memory/parameter_shards.h"
#include "ddp_runtime/train/state/stage_residence.h"

namespace ddp::train {

struct DividedParameters::Place {
  const ParameterShards* shards = nullptr;
  PlaceInFlat in;
};

DividedParameters::DividedParameters(std::span<DistributedDataParallel* const> replicas,
                                     std::span<torch::optim::Optimizer* const> optimizers,
                                     const StageResidence* stages)
    : stages_(stages) {
  for (auto* const replica : replicas) {
    if (auto* const sharded = dynamic_cast<ShardedDataParallel*>(replica)) {
      replicas_.push_back(sharded);
    }
  }
  for (auto* const optimizer : optimizers) {
    auto* const sharded = dynamic_cast<ShardedOptimizer*>(optimizer);
    if (sharded != nullptr && sharded->keeps_masters()) optimizers_.push_back(sharded);
  }
}

bool DividedParameters::any() const {
  if (stages_ != nullptr) return true;
  return std::ranges::any_of(replicas_, [](auto* replica) {
    return std::ranges::any_of(replica->shards().flats(),
                               [](const auto& flat) { return flat->is_divided(); });
  });
}

std::optional<DividedParameters::Place> DividedParameters::find(
    const torch::Tensor& parameter) const {
  for (auto* const replica : replicas_) {
    const auto& shards = replica->shards();
    const auto place = find_place(shards.flats(), parameter);
    if (!place || !shards.flats()[place->flat]->is_divided()) continue;
    return Place{&shards, *place};
  }
  return std::nullopt;
}

ShardedOptimizer* DividedParameters::master_keeper_of(const torch::Tensor& parameter) const {
  const auto found = std::ranges::find_if(
      optimizers_, [&](auto* optimizer) { return optimizer->has_master(parameter); });
  return found == optimizers_.end() ? nullptr : *found;
}

bool DividedParameters::has(const torch::Tensor& parameter) const {
  if (stages_ != nullptr) return stages_->has(parameter);
  return has_master(parameter) || find(parameter).has_value();
}

StateArray DividedParameters::array_of(std::string name, const torch::Tensor& parameter) const {
  if (stages_ != nullptr) {
    return stages_->array_of(std::move(name), parameter.detach(), parameter,
                             parameter.scalar_type());
  }
  if (const auto* const keeper = master_keeper_of(parameter)) {
    const auto master = keeper->values_of(parameter);
    auto rows = master.defined() ? as_rows(master.detach(), parameter)
                                 : no_rows(parameter, torch::kFloat32);
    return with_division({std::move(name), std::move(rows)}, parameter,
                         keeper->division_of(parameter));
  }
  const auto place = find(parameter).value();
  const auto& parts = place.shards->flats()[place.in.flat]->parts();
  const auto part = std::ranges::find_if(
      parts, [&](const auto& candidate) { return candidate.rows.array == place.in.array; });
  auto rows = part == parts.end() ? no_rows(parameter, parameter.scalar_type())
                                  : as_rows(part->values.detach(), parameter);
  return with_division({std::move(name), std::move(rows)}, parameter,
                       division_of(*place.shards, place.in));
}

std::vector<std::unique_ptr<WholeParameters>> DividedParameters::gather() const {
  std::vector<std::unique_ptr<WholeParameters>> whole;
  for (auto* const replica : replicas_) {
    whole.push_back(std::make_unique<WholeParameters>(*replica));
  }
  return whole;
}

// The master must have taken over the parameter before, or it would do so later.
void DividedParameters::set_master(const torch::Tensor& parameter,
                                   const torch::Tensor& values) const {
  const auto* const keeper = master_keeper_of(parameter);
  auto master = keeper->values_of(parameter);
  if (!master.defined()) return;
  const auto first = static_cast<std::int64_t>(keeper->division_of(parameter).first);
  const auto in_memory_order = values.as_strided({values.numel()}, {1});
  master.detach().copy_(in_memory_order.narrow(0, first, master.numel()));
}

void DividedParameters::round_masters() const {
  for (const auto* const optimizer : optimizers_) optimizer->round_masters();
}

void DividedParameters::publish_masters() const {
  for (auto* const optimizer : optimizers_) optimizer->publish_parts();
}

}  // namespace ddp::train
