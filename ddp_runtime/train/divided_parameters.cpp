// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/divided_parameters.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "ddp_runtime/parallel/sharded/parameter_shards.h"

namespace ddp::train {

struct DividedParameters::Place {
  const ParameterShards* shards = nullptr;
  PlaceInFlat in;
};

DividedParameters::DividedParameters(std::span<DistributedDataParallel* const> replicas) {
  for (auto* const replica : replicas) {
    if (auto* const sharded = dynamic_cast<ShardedDataParallel*>(replica)) {
      replicas_.push_back(sharded);
    }
  }
}

bool DividedParameters::any() const {
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

bool DividedParameters::has(const torch::Tensor& parameter) const {
  return find(parameter).has_value();
}

StateArray DividedParameters::array_of(std::string name, const torch::Tensor& parameter) const {
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

}  // namespace ddp::train
