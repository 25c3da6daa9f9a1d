// SPDX-License-Identifier: Apache-2.0
// One save beside training, from the copy of the state until the checkpoint is durable.
//
// Note [Saving beside training]
// A save has two parts, and training continues during both. First, each rank that takes part in the
// writing copies its share of the state and writes the copy to a file in a background thread:
// start(). When StepBoundary reports that no rank is writing any more, finish_shards() sends each
// rank's report (shard_report.h) to rank 0. Rank 0 then commits, reads back and removes old
// checkpoints, again in a background thread: commit(). An error on one rank abandons that save on
// all ranks. Checkpointer decides when to save, and what follows from the result. With node-local
// saves the ranks copy their files here instead, and the second part is the same: start_copy().
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/train/checkpoint/write/save_context.h"
#include "ddp_runtime/train/checkpoint/write/shard_writer.h"
#include "ddp_runtime/train/state/state_array.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"

namespace ddp::train {

struct SaveResult {
  std::uint64_t step = 0;
  std::uint64_t epoch = 0;
  std::string problem;             // empty if the checkpoint is durable
  bool fenced = false;             // the problem: another process has taken the directory over
  std::filesystem::path path;      // of the checkpoint; empty if there is a problem
  std::vector<std::string> notes;  // problems that did not stop the save
};

// A file that this rank has written elsewhere.
struct WrittenShard {
  std::filesystem::path file;
  ckpt::FileRecord record;
};

class BackgroundSave {
 public:
  BackgroundSave(const SaveContext& context, SaveTarget target);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  // Call on all ranks when no save is in progress. Returns as soon as `arrays` may change.
  void start(const ckpt::SaveId& id, ckpt::CheckpointInfo info,
             const std::vector<StateArray>& arrays);
  // The same for shards that are already in files. `mine`: nullopt if this rank wrote none.
  void start_copy(const ckpt::SaveId& id, ckpt::CheckpointInfo info,
                  std::optional<WrittenShard> mine);
  // Whether this rank is still writing. Not collective.
  bool writing() const noexcept { return !writer_.idle(); }
  // Whether the ranks have not sent their reports yet; the same on all ranks.
  bool shards_in_flight() const noexcept { return shards_in_flight_; }

  // On rank 0: whether a save is not over yet. Not collective.
  bool in_progress() const noexcept { return job_ != nullptr; }

  // Both are collective and advance the save in progress. On rank 0 they return its result when it
  // is over, otherwise nullopt; the other ranks never get one.
  // Does not wait. `anyone_writing`: whether writing() is true on any rank.
  std::optional<SaveResult> poll(bool anyone_writing);
  // Waits until no save is in progress.
  std::optional<SaveResult> drain();

  // Announces that this process has little time left: later saves are not read back, and no old
  // checkpoints are removed.
  void leave() noexcept { leaving_ = true; }

 private:
  struct Job;

  void begin(const ckpt::SaveId& id, ckpt::CheckpointInfo info);
  void finish_shards();
  void commit(std::vector<ckpt::FileRecord> records, bool verified);
  SaveResult take_result();

  const SaveContext context_;
  const SaveTarget target_;
  bool shards_in_flight_ = false;  // the same on all ranks
  bool committing_ = false;        // rank 0
  std::atomic<bool> leaving_ = false;
  std::shared_ptr<Job> job_;  // the save in progress; null on ranks whose part is over
  ShardWriter writer_;        // last: its thread, which uses the members above, is joined first
};

}  // namespace ddp::train
