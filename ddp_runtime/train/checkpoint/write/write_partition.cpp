// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/write/write_partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace ddp::train {
namespace {

// That a rank writes because it has the rows.
std::uint64_t bytes_of_rows(const std::vector<StateArray>& arrays, int rank) {
  std::uint64_t bytes = 0;
  for (const auto& array : arrays) {
    if (!array.division) continue;
    bytes +=
        array.division->elements.at(static_cast<std::size_t>(rank)) * array.tensor.element_size();
  }
  return bytes;
}

std::ptrdiff_t place_of(const std::vector<int>& writers, int rank) {
  return std::ranges::find(writers, rank) - writers.begin();
}

}  // namespace

std::uint64_t bytes_of(const std::vector<StateArray>& arrays) {
  std::uint64_t bytes = 0;
  for (const auto& array : arrays) bytes += array.bytes();
  return bytes;
}

std::vector<int> writers_of(const std::vector<StateArray>& arrays, std::uint64_t bytes_per_writer,
                            int ranks) {
  const std::uint64_t share = std::max<std::uint64_t>(1, bytes_per_writer);
  const std::uint64_t most = std::min<std::uint64_t>(arrays.size(), bytes_of(arrays) / share);
  const std::uint64_t first = std::max<std::uint64_t>(1, most);
  std::vector<int> writers;
  for (int rank = 0; rank < ranks; ++rank) {
    if (static_cast<std::uint64_t>(rank) < first || bytes_of_rows(arrays, rank) > 0) {
      writers.push_back(rank);
    }
  }
  return writers;
}

std::vector<StateArray> share_of(const TrainingState& state, std::vector<StateArray> arrays,
                                 const std::vector<int>& writers, int rank) {
  std::vector<std::uint64_t> load;
  for (const int writer : writers) load.push_back(bytes_of_rows(arrays, writer));
  std::stable_sort(arrays.begin(), arrays.end(),
                   [](const auto& a, const auto& b) { return a.bytes() > b.bytes(); });
  const auto mine = place_of(writers, rank);
  std::vector<StateArray> share;
  for (auto& array : arrays) {
    if (array.division) {
      const bool saves = array.division->elements.at(static_cast<std::size_t>(rank)) > 0;
      if (saves) share.push_back(std::move(array));
      continue;
    }
    const auto least =
        state.is_replicated(array.name) ? std::min_element(load.begin(), load.end()) : load.begin();
    *least += array.bytes();
    if (least - load.begin() == mine) share.push_back(std::move(array));
  }
  return share;
}

std::string shard_name(const std::vector<int>& writers, int rank) {
  if (writers.size() == 1) return "model.h5";
  return fmt::format("rank-{:05}-of-{:05}.h5", place_of(writers, rank), writers.size());
}

}  // namespace ddp::train
