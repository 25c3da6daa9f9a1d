// SPDX-License-Identifier: Apache-2.0
// The contents of checkpoints, for comparisons.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "hdf5_ckpt/directory/checkpoint_directory.h"

namespace ddp::train {

// Names of arrays -> their bytes, without generators and the order of buckets.
using Saved = std::map<std::string, std::vector<std::byte>>;

inline Saved saved_in(const ckpt::Checkpoint& checkpoint) {
  Saved saved;
  for (const auto& array : checkpoint.arrays()) {
    if (array.name.starts_with("rng/") || array.name.starts_with("ddp/")) continue;
    saved[array.name] = checkpoint.read(array.name).bytes;
  }
  return saved;
}

// Of the newest checkpoint, which is verified; empty if there is none.
inline Saved newest_in(const std::filesystem::path& directory) {
  const auto newest = ckpt::CheckpointDirectory(directory).newest_verified();
  return newest ? saved_in(newest->checkpoint) : Saved();
}

// Lowest first.
inline std::vector<std::uint64_t> steps_in(const std::filesystem::path& directory) {
  std::vector<std::uint64_t> steps;
  for (const auto& candidate : ckpt::CheckpointDirectory(directory).candidates()) {
    steps.insert(steps.begin(), candidate.step);
  }
  return steps;
}

}  // namespace ddp::train
