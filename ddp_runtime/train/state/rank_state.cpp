// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/rank_state.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "ddp_runtime/train/state/array_views.h"

namespace ddp::train {
namespace {

StateArray place_without_rows(const SavedArray& saved) {
  auto sizes = saved.sizes;
  if (!sizes.empty()) sizes[0] = 0;  // a number is read anyway
  return {saved.name, torch::empty(sizes, saved.type), Division{saved.sizes, {}, 0}};
}

}  // namespace

nlohmann::json SavedArray::to_json() const {
  return {name, sizes, static_cast<int>(type)};
}

SavedArray SavedArray::from_json(const nlohmann::json& json) {
  return {json.at(0).get<std::string>(), json.at(1).get<std::vector<std::int64_t>>(),
          static_cast<torch::ScalarType>(json.at(2).get<int>())};
}

std::vector<SavedArray> rank_arrays_in(const ckpt::Checkpoint& checkpoint) {
  std::vector<SavedArray> found;
  for (const auto& array : checkpoint.arrays()) {
    if (!array.name.starts_with(kRankState)) continue;
    found.push_back(
        {array.name, {array.shape.begin(), array.shape.end()}, scalar_type(array.dtype)});
  }
  return found;
}

StateArray own_row(std::string name, const torch::Tensor& mine, int rank, int ranks) {
  Division division{mine.sizes().vec(), {}, rank};
  division.sizes.insert(division.sizes.begin(), ranks);
  division.elements.assign(static_cast<std::size_t>(ranks), static_cast<std::size_t>(mine.numel()));
  return {std::move(name), mine.contiguous().unsqueeze(0), std::move(division)};
}

StateArray common_array(std::string name, const torch::Tensor& values, int ranks) {
  Division division{values.sizes().vec(), {}, 0};
  division.elements.assign(static_cast<std::size_t>(ranks), 0);
  division.elements.front() = static_cast<std::size_t>(values.numel());
  return {std::move(name), values.contiguous(), std::move(division)};
}

std::vector<StateArray> places_of(RankState* state, const std::vector<SavedArray>& saved) {
  auto places = state == nullptr ? std::vector<StateArray>{} : state->places_for(saved);
  for (const auto& array : saved) {
    if (std::ranges::find(places, array.name, &StateArray::name) != places.end()) continue;
    places.push_back(place_without_rows(array));
  }
  return places;
}

std::vector<StateArray> own_places_from_leader(comm::Group& group, RankState* state,
                                               const ckpt::Checkpoint* checkpoint) {
  if (state == nullptr) return {};
  auto texts = nlohmann::json::array();
  if (checkpoint != nullptr) {
    for (const auto& array : rank_arrays_in(*checkpoint)) texts.push_back(array.to_json());
  }
  std::vector<SavedArray> saved;
  for (const auto& text : nlohmann::json::parse(group.broadcast_text(texts.dump(), 0))) {
    saved.push_back(SavedArray::from_json(text));
  }
  return state->places_for(saved);
}

}  // namespace ddp::train
