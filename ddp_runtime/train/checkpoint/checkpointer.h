// SPDX-License-Identifier: Apache-2.0
// Decides when a run saves and where it resumes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/run_log.h"
#include "ddp_runtime/train/options/options.h"

namespace ddp::comm {
class Group;
}  // namespace ddp::comm

namespace ddp::train {

struct Evaluation;
struct Position;
class TrainingState;

class Checkpointer {
 public:
  // Collective; throws UsageError on all ranks if the directory cannot be written. The first
  // resume() or save() claims the directory for this run until this object is destroyed; it throws
  // UsageError on all ranks if another run saves there. `run` describes the run (model, data, ...)
  // and goes into every checkpoint. With an empty directory nothing is ever saved or resumed.
  // With `log`, lines and warnings go there and nothing is printed.
  Checkpointer(comm::Group& group, TrainingState& state, CheckpointOptions options,
               nlohmann::json run, LogFunction log = {});
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;
  // Waits for the save in progress. Call drain() if its result matters.
  ~Checkpointer();

  // Collective. Loads the checkpoint that options.resume selects. Returns nullopt if there is none.
  std::optional<Position> resume(std::uint64_t seed);

  // Collective, instead of resume(), for a process that trains nothing: saves the newest copy in
  // the memory of nodes, and removes the copies. Returns the position in the newest checkpoint,
  // which is not loaded; nullopt if there is none. Throws RuntimeError on all ranks if a copy could
  // not be saved.
  std::optional<Position> save_copy();

  bool enabled() const noexcept;
  // The step of the newest checkpoint that is known to be durable; -1 if there is none. Only
  // resume(), save() and drain() change it, so it is the same on all ranks.
  std::int64_t last_saved_step() const noexcept;
  // Whether this rank's clock asks for a save; only rank 0's does. Not collective: let all ranks
  // agree (StepBoundary), and then call request_save() on all of them after the same step.
  bool time_to_save() const;
  // A save is due() from now until save().
  void request_save() noexcept;
  // Whether a save is due at this position, between two steps or at the end of an epoch, where the
  // position is already that of the next epoch.
  bool due(const Position& position, bool end_of_epoch) const;
  // Collective. Returns as soon as the state may change; threads write a copy of it while training
  // continues (docs/checkpoint.md). Waits for the previous save if it is still in progress. If a
  // save fails, older checkpoints remain and training continues with a warning; after three
  // failures in a row it throws RuntimeError.
  void save(const Position& position);
  // Copies in the memory of nodes, if options ask for them (memory_copies.h); time_to_copy() and
  // request_copy() correspond to time_to_save() and request_save().
  bool time_to_copy() const;
  void request_copy() noexcept;
  // Whether one is due; false if a save is, too.
  bool copy_due(const Position& position, bool end_of_epoch) const;
  // Collective. Returns as soon as the state may change.
  void copy(const Position& position);
  // Whether this rank is still writing a copy. Not collective.
  bool copying() const noexcept;
  // For run.json, on rank 0; null if there were no copies.
  nlohmann::json copies_summary() const;
  // Whether this rank is still writing for a save. Not collective.
  bool writing() const noexcept;
  // Collective. `anyone_writing`, `anyone_copying`: StepBoundary's combination of all ranks'
  // writing() and copying(). Advances the save in progress: starts its commit when no rank is
  // writing any more, or finishes it. Throws as save() does.
  void poll(bool anyone_writing, bool anyone_copying = false);
  // Collective. Returns when no save is in progress. Throws as save() does.
  void drain();
  // Collective, for the last step of a run: on return a checkpoint of this position is durable, and
  // copies in memory are gone. Retries a failed save, then throws RuntimeError on all ranks.
  void save_last(const Position& position);
  // Collective, for a run with nothing left to do, when a checkpoint of `step` is in the directory:
  // removes what killed jobs left of the saves up to that step on the nodes, and copies in memory.
  void remove_local_saves(std::int64_t step);
  // Announces that this process has little time left: later saves are not read back, and no old
  // checkpoints are removed.
  void leave() noexcept;
  // Collective. Saves a checkpoint in <directory>/best (best_checkpoint.h) if its evaluation is the
  // best of this run, and removes the one before it; durable on return. Does nothing without
  // options.keep_best.
  void save_best(const Position& position, const Evaluation& evaluation);
  // Collective, before the end of the program: waits for the command of options.after_save, at
  // most until its limit, and after leave() only briefly.
  void finish_commands();

  // Duration of the slowest save of this run until it was durable; before the first save, an
  // estimate from the size of the state. May differ between ranks.
  double longest_save_seconds() const noexcept;

  // The newest checkpoint that this run wrote or resumed from; empty if none. Valid on rank 0, when
  // no save is in progress.
  const std::filesystem::path& newest() const noexcept;
  // The best checkpoint that this process wrote; empty if none. Rank 0 only.
  const std::filesystem::path& best() const noexcept;

 private:
  // Behind a pointer, so that programs compile without what saving consists of.
  struct Parts;
  struct Saving;
  std::unique_ptr<Parts> parts_;
};

}  // namespace ddp::train
