// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/write_partition.h"

#include <fmt/format.h>

#include <algorithm>

namespace ddp::train {

std::uint64_t bytes_of(const std::vector<NamedTensor>& arrays) {
  std::uint64_t bytes = 0;
  for (const auto& array : arrays) bytes += array.tensor.nbytes();
  return bytes;
}

int count_writers(const std::vector<NamedTensor>& arrays, std::uint64_t bytes_per_writer,
                  int ranks) {
  const std::uint64_t share = std::max<std::uint64_t>(1, bytes_per_writer);
  const std::uint64_t most = std::min<std::uint64_t>(arrays.size(), bytes_of(arrays) / share);
  return static_cast<int>(std::clamp<std::uint64_t>(most, 1, static_cast<std::uint64_t>(ranks)));
}

std::vector<NamedTensor> part_of(const TrainingState& state, std::vector<NamedTensor> arrays,
                                 int writer, int writers) {
  std::stable_sort(arrays.begin(), arrays.end(), [](const auto& a, const auto& b) {
    return a.tensor.nbytes() > b.tensor.nbytes();
  });
  std::vector<std::uint64_t> load(static_cast<std::size_t>(writers));
  std::vector<NamedTensor> part;
  for (auto& array : arrays) {
    const auto least =
        state.is_replicated(array.name) ? std::min_element(load.begin(), load.end()) : load.begin();
    *least += array.tensor.nbytes();
    if (least - load.begin() == writer) part.push_back(std::move(array));
  }
  return part;
}

std::string shard_name(int writer, int writers) {
  if (writers == 1) return "model.h5";
  return fmt::format("rank-{:05}-of-{:05}.h5", writer, writers);
}

}  // namespace ddp::train
