// SPDX-License-Identifier: Apache-2.0
// The line of checkpoints that a run adds to (Note [One line of checkpoints] in
// hdf5_ckpt/core/lineage.h): what the next one follows, and which is the newest. Rank 0's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/train/checkpoint/resume/resumed_run.h"
#include "ddp_runtime/train/checkpoint/save_point.h"
#include "ddp_runtime/train/checkpoint/write/background_save.h"
#include "hdf5_ckpt/core/lineage.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"

namespace ddp::train {

class CheckpointLine {
 public:
  // Of a run that has no checkpoint yet.
  CheckpointLine() : next_{ckpt::new_run_name(), {}, {}} {}

  void continue_after(const ResumedRun& resumed);
  // A checkpoint that is not loaded.
  void note_newest(std::filesystem::path checkpoint) { newest_ = std::move(checkpoint); }
  void add(const SaveResult& result);
  // On ranks that do not add(), and after a resume.
  void set_durable(SavePoint point) noexcept { durable_ = point; }

  // The name that all checkpoints of the run have.
  const std::string& run() const noexcept { return next_.run; }
  // The lineage of a checkpoint of this step, which may take the place of the newest one.
  ckpt::Lineage lineage_at(std::uint64_t step) const;
  // Says in `info` that the checkpoint takes the place of the one in `directory` from which this
  // process has resumed, if that has the same step.
  void replace(std::int64_t step, const std::filesystem::path& directory,
               ckpt::CheckpointInfo& info) const;

  // Empty if there is none.
  const std::filesystem::path& newest() const noexcept { return newest_; }
  SavePoint durable() const noexcept { return durable_; }

 private:
  ckpt::Lineage next_;                         // of the next checkpoint
  std::optional<std::uint64_t> parent_;        // of the newest checkpoint
  std::vector<std::uint32_t> earlier_states_;  // of the one resumed from
  std::filesystem::path newest_;
  SavePoint durable_;
};

}  // namespace ddp::train
