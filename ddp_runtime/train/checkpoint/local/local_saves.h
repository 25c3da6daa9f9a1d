// SPDX-License-Identifier: Apache-2.0
// Saves to a disk of each node; see Note [Node-local saves] in hdf5_ckpt/directory/local_store.h.
//
// Note [Copying behind node-local saves]
// One save is staged at a time: each rank that takes part writes its share to its node's disk, and
// finish_staging() finds out whether all have. The newest staged save then waits until it can be
// copied to the checkpoint directory, which takes longer: a save that is staged meanwhile takes its
// place. So a slow file system makes checkpoints there rarer, but stops neither training nor the
// saves to the nodes' disks. A node holds at most three saves: one that is being copied, one that
// waits and one that is being staged.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/train/checkpoint/write/background_save.h"
#include "ddp_runtime/train/checkpoint/write/save_context.h"
#include "ddp_runtime/train/checkpoint/write/shard_writer.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/directory/local_store.h"

namespace ddp::train {

// Collective. Throws UsageError on all ranks if a rank cannot use options.local_directory.
void require_local_directory(const SaveContext& context);

class LocalSaves {
 public:
  explicit LocalSaves(const SaveContext& context);
  LocalSaves(const LocalSaves&) = delete;
  LocalSaves& operator=(const LocalSaves&) = delete;

  // Collective, before the first start(), when the checkpoint directory is this run's. Returns why
  // a node's disk or the directory could not be written, the same on all ranks; empty if all could.
  std::string open();
  bool is_open() const noexcept { return store_.has_value(); }

  // Call on all ranks when no save is being staged. Returns as soon as `arrays` may change.
  void start(const ckpt::SaveId& id, ckpt::CheckpointInfo info,
             const std::vector<StateArray>& arrays);
  // Whether a save is being staged; the same on all ranks.
  bool staging() const noexcept { return staging_ != nullptr; }
  // Whether this rank is still writing. Not collective.
  bool writing() const noexcept { return !writer_.idle(); }
  struct Staged {
    std::string problem;  // of the lowest rank that could not write; empty if all could
    double seconds = 0;   // until the slowest rank had written
  };
  // Collective: waits until no save is being staged. The save then waits(), unless a rank could not
  // write. The result is the same on all ranks.
  Staged finish_staging();

  // The save that waits to be copied, or null; the same on all ranks.
  const ckpt::CheckpointInfo* waits() const noexcept;
  std::uint64_t waiting_step() const noexcept;
  void drop_waiting() noexcept { waiting_.reset(); }
  // Collective, when `copying` has no save in progress: starts to copy the save that waits. Returns
  // why it could not be started, the same on all ranks; it then no longer waits.
  std::string begin_copy(ckpt::CheckpointDirectory& directory, BackgroundSave& copying);

  // On the lowest rank of a node: removes what the node no longer needs if `durable` is the newest
  // step in the checkpoint directory. Call on all ranks between the same two collectives.
  void remove_needless(std::int64_t durable);

 private:
  struct Save;

  const SaveContext context_;
  std::optional<ckpt::LocalStore> store_;
  std::optional<ckpt::SaveId> first_;  // of this run's saves; all have the same owner
  std::shared_ptr<Save> staging_;
  std::shared_ptr<Save> waiting_;
  std::shared_ptr<Save> complete_;  // the newest save that all nodes hold
  std::shared_ptr<Save> copying_;   // the last that was copied, or is
  ShardWriter writer_;              // last: its thread uses store_
};

}  // namespace ddp::train
