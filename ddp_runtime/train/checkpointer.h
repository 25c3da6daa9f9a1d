// When a run saves, what happens when a save fails, and where a run resumes.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/train/options.h"
#include "ddp_runtime/train/training_state.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/retention.h"

namespace ddp::train {

class Checkpointer {
 public:
  // Collective; throws UsageError on all ranks if the directory cannot be written. `run` describes
  // the run (model, data, ...) and goes into every checkpoint. With an empty directory nothing is
  // ever saved or resumed.
  Checkpointer(comm::Group& group, TrainingState& state, CheckpointOptions options,
               nlohmann::json run);

  // Collective. Loads what options.resume says. Nothing if there is nothing to resume.
  std::optional<Position> resume(std::uint64_t seed);

  bool enabled() const noexcept { return directory_.has_value(); }
  std::int64_t last_saved_step() const noexcept { return last_saved_step_; }
  // Whether a save is due after this step.
  bool due(std::int64_t step, bool end_of_epoch) const;
  // Collective. A save that fails leaves the older checkpoints as they are and training goes on
  // with a warning; after kFailuresInARow it throws RuntimeError on all ranks.
  void save(const Position& position);
  // Collective. The same into <directory>/best, where it replaces the one before; does nothing
  // unless options.keep_best.
  void save_best(const Position& position);

  // The newest checkpoint that this run wrote or resumed from; empty if none. Rank 0 only.
  const std::filesystem::path& newest() const noexcept { return newest_; }
  // The best one that this process wrote; empty if none. Rank 0 only.
  const std::filesystem::path& best() const noexcept { return best_; }

 private:
  static constexpr int kFailuresInARow = 3;

  ckpt::Checkpoint load_on_leader();
  using Write = std::string (Checkpointer::*)(const std::vector<NamedTensor>&, const Position&);
  // Has rank 0 write; counts and tells failures, which are returned as text.
  void save_with(Write how, const Position& position);
  std::string write_newest(const std::vector<NamedTensor>& arrays, const Position& position);
  std::string write_best(const std::vector<NamedTensor>& arrays, const Position& position);
  ckpt::Saved write(ckpt::CheckpointDirectory& directory, const std::vector<NamedTensor>& arrays,
                    const Position& position) const;

  comm::Group& group_;
  TrainingState& state_;
  CheckpointOptions options_;
  nlohmann::json run_;
  ckpt::OwnerTag owner_;
  std::optional<ckpt::CheckpointDirectory> directory_;  // none: nothing is saved
  std::optional<ckpt::Retention> retention_;
  std::filesystem::path newest_;
  std::filesystem::path best_;
  std::int64_t last_saved_step_ = -1;
  int failures_ = 0;
};

}  // namespace ddp::train
