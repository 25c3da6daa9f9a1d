// SPDX-License-Identifier: Apache-2.0
// Finishes the newest save on the nodes of a job that ended before it was in the checkpoint
// directory; see Note [Node-local saves] in hdf5_ckpt/directory/local_store.h, and memory_copies.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/train/checkpoint/write/save_context.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/local_store.h"

namespace ddp::train {

// A shard that a rank has found on its node's disk, without its checksums.
struct FoundShard {
  ckpt::SaveId save;
  std::uint64_t shards = 1;  // of the save
  std::string file;
  std::uint64_t bytes = 0;
  std::optional<ckpt::CheckpointInfo> info;
};

// The newest checkpoint in the directory.
struct NewestCheckpoint {
  std::uint64_t step = 0;
  std::string run_id;
  std::optional<ckpt::Lineage> lineage;
};

struct AdoptionPlan {
  ckpt::SaveId save;
  ckpt::CheckpointInfo info;
  std::uint64_t bytes = 0;
  std::vector<std::vector<std::string>> files;  // that each rank copies
};

// Where the nodes hold saves.
struct NodeStores {
  std::filesystem::path directory;  // on each node
  std::string id;                   // of the checkpoint directory; empty: it has none
  std::string name;                 // for messages
};

// The stores of options.local_directory. Collective.
NodeStores local_stores(const SaveContext& context);

FoundShard found_of(const ckpt::LocalShard& shard);
// Convert a list for sending it to another rank.
std::string found_to_text(const std::vector<ckpt::LocalShard>& shards);
std::vector<FoundShard> found_from_text(const std::string& text);

// Throws Error if the directory cannot be read.
std::optional<NewestCheckpoint> newest_in(const ckpt::CheckpointDirectory& directory);

// Chooses the newest save that continues `newest`, or that begins the sequence if that is nullopt,
// and of which the ranks have found all shards, each at the lowest rank that has it. `found`: one
// list for each rank. Adds a sentence to `notes` about a later save that lacks shards; `where`: the
// name of the stores. Pure.
std::optional<AdoptionPlan> plan_adoption(const std::vector<std::vector<FoundShard>>& found,
                                          const std::optional<NewestCheckpoint>& newest,
                                          std::vector<std::string>& notes,
                                          const std::string& where);

// Collective, before resuming, when the directory is this run's: copies that save, if there is one,
// to the directory and commits it. A save with wrong bytes is reported, and the one before it is
// tried. Returns why the directory could not be written, the same on all ranks; empty if it could.
std::string adopt_saves(const SaveContext& context, const NodeStores& stores,
                        ckpt::CheckpointDirectory& directory);

// Collective: removes what the nodes' disks hold of this directory's saves up to `step`, which is
// in the directory. A job that was killed between its last commit and its end leaves some.
void remove_local_saves(const SaveContext& context, std::uint64_t step);

}  // namespace ddp::train
