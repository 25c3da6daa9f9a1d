// SPDX-License-Identifier: Apache-2.0
// Restores a copy of the state that an earlier start of the run has left in the memory of the
// nodes; see Note [Copies in node memory] in memory_copies.h.
//
// Note [The way of a copy]
// Rank 0 loads a checkpoint and distributes it, so the files of a copy must be in the memory of its
// node. They are there if the node was part of the earlier start and all ranks were on it, or had
// the same state. A whole copy of another node is sent to rank 0's. Parts of several nodes, which
// need not fit in one, are copied to the checkpoint directory, by all nodes at once, and resumed
// from there, by any number of ranks.
// All bytes are verified. If some are wrong, the same step of another node is used, then the copy
// before it, then the newest checkpoint. Each is said in one line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/train/checkpoint/local/local_adoption.h"
#include "hdf5_ckpt/core/lineage.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::train {

// A copy to resume from.
struct MemoryCopy {
  ckpt::SaveId save;  // the same on all ranks
  // Rank 0:
  std::optional<ckpt::Checkpoint> checkpoint;
  ckpt::Lineage lineage;                // of the next checkpoint
  std::optional<std::uint64_t> newest;  // the newest checkpoint in the directory
};

// How a copy is brought to where it can be loaded.
struct RestorePlan {
  enum class Way : std::uint8_t {
    here,  // rank 0's node has it
    send,  // `holder` has it
    copy,  // the nodes have it together: to the checkpoint directory
  };
  AdoptionPlan copy;
  Way way = Way::here;
  std::size_t holder = 0;  // a rank
};

// Chooses the newest copy that continues `newest`, as plan_adoption() does. `found`: one list for
// each rank. `directly`: whether it may be loaded from memory. Pure.
std::optional<RestorePlan> plan_restore(const std::vector<std::vector<FoundShard>>& found,
                                        const std::optional<NewestCheckpoint>& newest,
                                        bool directly, std::vector<std::string>& notes);

// Removes from `found` what a rank has of a save, because it is damaged.
void leave_out_at(std::size_t rank, const ckpt::SaveId& save,
                  std::vector<std::vector<FoundShard>>& found);

// Collective, when the directory is this run's. Returns a copy to resume from; nullopt if the
// directory has what is to be resumed from, perhaps because a copy was put there. Never throws
// because of a copy or its memory. `stores`: in the memory of the nodes.
std::optional<MemoryCopy> restore_from_memory(const SaveContext& context, const NodeStores& stores,
                                              ckpt::CheckpointDirectory& directory);

}  // namespace ddp::train
