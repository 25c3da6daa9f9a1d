// SPDX-License-Identifier: Apache-2.0
// Reports of the ranks to rank 0 about the shards of a checkpoint that they have written. No side
// effects.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "hdf5_ckpt/core/manifest.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"

namespace ddp::train {

// One rank's report.
struct ShardReport {
  std::string problem;                     // empty if none
  std::optional<ckpt::FileRecord> record;  // nullopt if the rank did not write a shard
  bool read_back = false;                  // and every byte on the disk was correct
};

std::string to_text(const ShardReport& report);

// The attributes of a shard's file.
nlohmann::json shard_attributes(const ckpt::CheckpointInfo& info);

// The shards of one checkpoint.
struct Shards {
  std::vector<ckpt::FileRecord> records;
  std::string problem;   // of the lowest rank that has one; empty if none
  bool verified = true;  // every shard was read back
};

// `reports`: to_text() of every rank, in rank order.
Shards collect_shards(const std::vector<std::string>& reports);

}  // namespace ddp::train
