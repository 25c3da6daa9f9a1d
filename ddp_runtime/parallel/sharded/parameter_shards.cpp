// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/parameter_shards.h"

#include <algorithm>

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

}  // namespace ddp
