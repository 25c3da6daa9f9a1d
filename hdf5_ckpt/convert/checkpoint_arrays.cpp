// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/convert/checkpoint_arrays.h"

#include <algorithm>
#include <string_view>

namespace ddp::ckpt {
namespace {

constexpr std::string_view kModel = kModelPrefix;

std::size_t index_of(const Checkpoint& checkpoint, const StoredArray& array) {
  return static_cast<std::size_t>(&array - checkpoint.arrays().data());
}

}  // namespace

bool has_average(const Checkpoint& checkpoint) {
  const auto& arrays = checkpoint.arrays();
  return std::any_of(arrays.begin(), arrays.end(),
                     [](const StoredArray& array) { return array.name.starts_with(kAverages); });
}

bool asks_for_average(const std::string& prefix) {
  constexpr std::string_view kAverage = kAveragePrefix;
  return prefix.starts_with(kAverage) || prefix + "/" == kAverage;
}

bool leaves_the_average(const Checkpoint& checkpoint, const std::string& prefix) {
  return (prefix.starts_with(kModel) || prefix + "/" == kModel) && has_average(checkpoint);
}

std::vector<CheckpointArray> checkpoint_arrays(const Checkpoint& checkpoint,
                                               const std::string& prefix) {
  const bool average = asks_for_average(prefix) && has_average(checkpoint);
  std::vector<CheckpointArray> all;
  for (const StoredArray& array : checkpoint.arrays()) {
    const std::string_view name = array.name;
    if (!average) {
      all.push_back({std::string(name), index_of(checkpoint, array)});
    } else if (name.starts_with(kModel)) {
      const std::string own(name.substr(kModel.size()));
      const StoredArray* const averaged = checkpoint.find(std::string(kAverages) + own);
      all.push_back(
          {kAveragePrefix + own, index_of(checkpoint, averaged == nullptr ? array : *averaged)});
    }
  }
  return all;
}

}  // namespace ddp::ckpt
