// SPDX-License-Identifier: Apache-2.0
// Decides when a run saves and where it resumes, and handles failed saves.
//
// Note [Saving beside training]
// A save has two parts, and training continues during both. First, each rank that takes part in the
// writing copies its share of the state and writes the copy to a file in a background thread. When
// StepBoundary reports that no rank is writing any more, finish_shards() sends each rank's record
// to rank 0. Rank 0 then commits, reads back and removes old checkpoints, again in a background
// thread. An error on one rank abandons that save on all ranks.
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
  // resume() or save() claims the directory for this run (Note [Lease]) until this object is
  // destroyed. `run` describes the run (model, data, ...) and goes into every checkpoint. With an
  // empty directory nothing is ever saved or resumed.
  Checkpointer(comm::Group& group, TrainingState& state, CheckpointOptions options,
               nlohmann::json run);

  // Collective. Loads the checkpoint that options.resume selects. Returns nullopt if there is none.
  std::optional<Position> resume(std::uint64_t seed);

  bool enabled() const noexcept { return directory_.has_value(); }
  // The step of the newest checkpoint that is known to be durable; -1 if there is none. Only
  // resume() and drain() change it, so it is the same on all ranks.
  std::int64_t last_saved_step() const noexcept { return agreed_step_; }
  // Whether a save is due after this step.
  bool due(std::int64_t step, bool end_of_epoch) const;
  // Collective. Returns as soon as the state may change: see Note [Saving beside training]. Waits
  // for the previous save if it is still in progress. If a save fails, older checkpoints remain and
  // training continues with a warning; after kFailuresInARow failures it throws RuntimeError.
  void save(const Position& position);
  // Whether this rank is still writing for a save. Not collective.
  bool writing() const noexcept { return !saver_.idle(); }
  // Collective. `anyone_writing`: StepBoundary's combination of all ranks' writing(). Advances the
  // save in progress: starts its commit when no rank is writing any more, or finishes it. Throws as
  // save() does.
  void poll(bool anyone_writing);
  // Collective. Returns when no save is in progress. Throws as save() does.
  void drain();
  // Collective, for the last step of a run: on return a checkpoint of this position is durable.
  // Retries a failed save, then throws RuntimeError on all ranks.
  void save_last(const Position& position);
  // Announces that this process has little time left: later saves are not read back, and no old
  // checkpoints are removed.
  void leave() noexcept { leaving_ = true; }
  // Collective. Saves to <directory>/best, replacing the previous best checkpoint; durable on
  // return. Does nothing unless options.keep_best.
  void save_best(const Position& position);

  // Duration of the slowest save of this run until it was durable; before the first save, an
  // estimate from the size of the state. May differ between ranks.
  double longest_save_seconds() const noexcept { return longest_save_; }

  // The newest checkpoint that this run wrote or resumed from; empty if none. Valid on rank 0, when
  // no save is in progress.
  const std::filesystem::path& newest() const noexcept { return newest_; }
  // The best checkpoint that this process wrote; empty if none. Rank 0 only.
  const std::filesystem::path& best() const noexcept { return best_; }

 private:
  static constexpr int kFailuresInARow = 3;
  static constexpr int kLastAttempts = 3;

  // The data that a save's background thread works on; it accesses nothing else in this object.
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
  ckpt::Lineage lineage_;                               // of the next checkpoint; rank 0
  std::optional<ckpt::CheckpointDirectory> directory_;  // nullopt: nothing is saved
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
  std::int64_t agreed_step_ = -1;   // the same on all ranks, as of the last drain()
  int failures_ = 0;
  bool ending_ = false;  // there are no further steps
  std::string problem_;  // of the last save that failed; rank 0
  double longest_save_ = 0;
  std::chrono::steady_clock::time_point save_began_;
  bool shards_in_flight_ = false;  // the same on all ranks
  std::shared_ptr<Job> job_;       // save in progress, on ranks that take part in it
  ckpt::AsyncSaver saver_;         // last member: its thread is joined first
};

}  // namespace ddp::train
