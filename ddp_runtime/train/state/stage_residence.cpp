// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/stage_residence.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ddp::train {

void StageResidence::add(const torch::Tensor& tensor, std::vector<int> ranks) {
  places_.emplace(key_of(tensor), std::move(ranks));
}

bool StageResidence::is_here(const torch::Tensor& tensor) const {
  const auto& ranks = places_.at(key_of(tensor));
  return std::ranges::find(ranks, rank_) != ranks.end();
}

StateArray StageResidence::array_of(std::string name, const torch::Tensor& values,
                                    const torch::Tensor& like, torch::ScalarType type) const {
  Division division{like.sizes().vec(), std::vector<std::size_t>(static_cast<std::size_t>(ranks_))};
  const int saver = places_.at(key_of(like)).front();
  division.elements[static_cast<std::size_t>(saver)] = static_cast<std::size_t>(like.numel());
  return {std::move(name), is_here(like) ? values : no_rows(like, type), std::move(division)};
}

}  // namespace ddp::train
