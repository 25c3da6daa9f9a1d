// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/memory/parameter_shards.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ddp {

std::optional<PlaceInFlat> find_place(const std::vector<std::unique_ptr<FlatShard>>& flats,
                                      const torch::Tensor& parameter) {
  for (std::size_t flat = 0; flat < flats.size(); ++flat) {
    const auto& arrays = flats[flat]->arrays();
    const auto found = std::ranges::find_if(
        arrays, [&](const torch::Tensor& array) { return array.is_same(parameter); });
    if (found == arrays.end()) continue;
    return PlaceInFlat{flat, static_cast<std::size_t>(found - arrays.begin())};
  }
  return std::nullopt;
}

ArrayDivision division_of(const ParameterShards& shards, PlaceInFlat place) {
  const auto& groups = shards.groups();
  auto sizes = shards.flats()[place.flat]->sizes_by_rank(place.array);
  const auto first =
      std::accumulate(sizes.begin(), sizes.begin() + groups.sharing.rank(), std::size_t{0});
  if (sizes.size() == 1) return {std::move(sizes), 0};
  std::vector<std::size_t> saved(static_cast<std::size_t>(groups.all.size()));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    // All nodes save about as much.
    const auto& node = groups.nodes[(place.flat + i) % groups.nodes.size()];
    saved[static_cast<std::size_t>(node[i])] = sizes[i];
  }
  return {std::move(saved), first};
}

}  // namespace ddp
