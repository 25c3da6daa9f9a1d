// SPDX-License-Identifier: Apache-2.0
// When a run saves, what happens when a save fails, and where a run resumes.
//
// Note [Saving beside training]
// A save has two parts, and training continues beside both. First the ranks that share the writing
// each copy their part of the state and write the copy to a file, on a thread of their own. When
// StepBoundary says that none writes any more, finish_shards() sends rank 0 what each has written;
// rank 0 then commits, reads back and removes old checkpoints, on its thread again. A rank's error
// abandons that one save on all.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/train/options.h"
#include "ddp_runtime/train/training_state.h"
#include "hdf5_ckpt/async_saver.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/lease.h"
#include "hdf5_ckpt/lineage.h"
#include "hdf5_ckpt/resume.h"
#include "hdf5_ckpt/retention.h"

namespace ddp::train {

class Checkpointer {
 public:
  // Collective; throws UsageError on all ranks if the directory cannot be written. The first
  // resume() or save() makes it this run's own (Note [Lease]), until this ends. `run` describes
  // the run (model, data, ...) and goes into every checkpoint. With an empty directory nothing is
  // ever saved or resumed.
  Checkpointer(comm::Group& group, TrainingState& state, CheckpointOptions options,
               nlohmann::json run);

  // Collective. Loads what options.resume says. Nothing if there is nothing to resume.
  std::optional<Position> resume(std::uint64_t seed);

  bool enabled() const noexcept { return directory_.has_value(); }
  // The step of the newest checkpoint that is known to be durable; -1 if there is none. Changed by
  // resume() and drain() only, and so the same on all ranks.
  std::int64_t last_saved_step() const noexcept { return agreed_step_; }
  // Whether a save is due after this step.
  bool due(std::int64_t step, bool end_of_epoch) const;
  // Collective. Returns when the state may change: see Note [Saving beside training]. Waits for the
  // save before, if that is still at work. A save that fails leaves the older checkpoints as they
  // are and training continues with a warning; after kFailuresInARow it throws RuntimeError.
  void save(const Position& position);
  // Whether this rank still writes for a save. Not collective.
  bool writing() const noexcept { return !saver_.idle(); }
  // Collective, with what StepBoundary says of all ranks' writing(): takes a save that is written
  // one step further. Throws as save() does.
  void poll(bool anyone_writing);
  // Collective. Returns when nothing is in flight. Throws as save() does.
  void drain();
  // Collective, for the last step of a run: on return a checkpoint of this position is durable. A
  // save that fails is tried again; then throws RuntimeError on all ranks.
  void save_last(const Position& position);
  // This process has little time left: what is saved from here on is not read back, and nothing old
  // is removed.
  void leave() noexcept { leaving_ = true; }
  // Collective. The same into <directory>/best, where it replaces the one before, and durable on
  // return; does nothing unless options.keep_best.
  void save_best(const Position& position);

  // How long the slowest save of this run has taken until it was durable, and before the first one
  // a guess from the size of the state. On all ranks alike only by chance.
  double longest_save_seconds() const noexcept { return longest_save_; }

  // The newest checkpoint that this run wrote or resumed from; empty if none. Rank 0 only, settled.
  const std::filesystem::path& newest() const noexcept { return newest_; }
  // The best one that this process wrote; empty if none. Rank 0 only.
  const std::filesystem::path& best() const noexcept { return best_; }

 private:
  static constexpr int kFailuresInARow = 3;
  static constexpr int kLastAttempts = 3;

  // What the thread of a save works on; it sees nothing else of this.
  struct Job;

  void claim();
  bool claim_on_leader(std::optional<ckpt::LeaseClaim>& claim);
  void require_lease() const;
  std::optional<std::uint64_t> headroom_per_rank() const;
  std::optional<ckpt::Resumption> load_on_leader();
  std::string resume_on_leader();
  void leave_branch(const ckpt::Resumption& resumed);
  void set_aside_best_after(std::uint64_t step);
  void start_writing(const std::vector<NamedTensor>& arrays);
  void finish_shards();
  void commit_on_leader(std::vector<ckpt::FileRecord> records);
  void finish_commit();
  void agree_on_durable_step();
  void record_result(const std::string& problem, std::int64_t step);
  ckpt::CheckpointInfo info_of(const Position& position) const;
  std::string write_best(const std::vector<NamedTensor>& arrays, const Position& position);

  comm::Group& group_;
  TrainingState& state_;
  CheckpointOptions options_;
  nlohmann::json run_;
  ckpt::OwnerTag owner_;
  ckpt::Lineage lineage_;                               // of what is saved next; rank 0
  std::optional<ckpt::CheckpointDirectory> directory_;  // none: nothing is saved
  std::optional<ckpt::Retention> retention_;
  std::unique_ptr<ckpt::Lease> lease_;  // rank 0
  bool claimed_ = false;
  std::uint64_t local_ranks_ = 1;
  bool said_short_ = false;
  std::atomic<bool> leaving_ = false;
  std::filesystem::path newest_;
  std::filesystem::path best_;
  std::int64_t attempted_step_ = -1;
  std::int64_t durable_step_ = -1;  // rank 0
  std::int64_t agreed_step_ = -1;   // the same, as of the last drain()
  int failures_ = 0;
  bool ending_ = false;  // there are no further steps
  std::string problem_;  // of the last save that failed; rank 0
  double longest_save_ = 0;
  std::chrono::steady_clock::time_point save_began_;
  bool shards_in_flight_ = false;  // on all ranks alike
  std::shared_ptr<Job> job_;       // of the save in flight, on ranks that have a part in it
  ckpt::AsyncSaver saver_;         // last: its thread ends first
};

}  // namespace ddp::train
