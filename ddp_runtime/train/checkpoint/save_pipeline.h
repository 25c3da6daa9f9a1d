// SPDX-License-Identifier: Apache-2.0
// Brings a save to the checkpoint directory: directly (background_save.h), or by way of a disk of
// each node (local_saves.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/train/checkpoint/local/local_saves.h"
#include "ddp_runtime/train/checkpoint/write/background_save.h"
#include "ddp_runtime/train/checkpoint/write/save_context.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"

namespace ddp::train {

// What happened to saves, on rank 0.
struct SaveEvents {
  // A save is over; `seconds`: its duration, without the time that it waited for others.
  std::function<void(const SaveResult&, double seconds)> over;
  // All nodes hold a save.
  std::function<void(double seconds)> staged;
};

class SavePipeline {
 public:
  // Collective. Throws UsageError on all ranks if a rank cannot use options.local_directory.
  SavePipeline(const SaveContext& context, const SaveTarget& target, SaveEvents events);
  SavePipeline(const SavePipeline&) = delete;
  SavePipeline& operator=(const SavePipeline&) = delete;

  // Collective, before resuming, when the directory is this run's: see local_adoption.h.
  void adopt_local_saves();
  // Collective, later, if the run has nothing left to do and `step` is in the directory: removes
  // what is left of the saves up to that step.
  void remove_local_saves(std::uint64_t step);
  // Collective, instead: a run that starts over does not use what an earlier one has left.
  void forget_local_saves();

  // Collective, when the directory is this run's: returns when a save can begin. `durable`: the
  // newest step in the directory that all ranks know of.
  void make_room(std::int64_t durable);
  // Collective, then: begins a save. Returns as soon as `arrays` may change. If it cannot begin,
  // that is its result.
  void start(std::uint64_t step, ckpt::CheckpointInfo info, const std::vector<StateArray>& arrays);
  // Whether saves go to the nodes' own disks first; the same on all ranks.
  bool locally() const noexcept { return local_ && !local_failed_; }
  // On rank 0: whether make_room() would wait for this rank. Not collective.
  bool busy() const noexcept;
  // Whether this rank is still writing. Not collective.
  bool writing() const noexcept;
  // Collective: advances the saves in progress without waiting. `anyone_writing`: whether writing()
  // is true on any rank.
  void poll(bool anyone_writing);
  // Collective. Returns when no save is in progress.
  void drain();
  // Collective, before the last save of a run, at `step`: earlier ones that wait to be copied are
  // not needed any more.
  void drop_before(std::uint64_t step);
  // From now on saves go to the directory alone. Call on all ranks.
  void avoid_local_disks() noexcept { local_failed_ = true; }
  // Removes what the nodes' own disks hold needlessly if `durable` is the newest step in the
  // directory. Call on all ranks after drain().
  void remove_needless(std::int64_t durable);
  // See BackgroundSave.
  void leave() noexcept { direct_.leave(); }

 private:
  void finish_staging();
  void stop_staging(const std::string& problem);
  void begin_copy();
  void report(const std::optional<SaveResult>& result);

  const SaveContext context_;
  ckpt::CheckpointDirectory& directory_;
  const SaveEvents events_;
  BackgroundSave direct_;  // also copies what was staged
  std::optional<LocalSaves> local_;
  bool local_failed_ = false;  // the same on all ranks
  std::chrono::steady_clock::time_point direct_began_;
  double staging_seconds_ = 0;         // of the newest staged save
  double copied_staging_seconds_ = 0;  // of the save in direct_; 0 if it was not staged
};

}  // namespace ddp::train
