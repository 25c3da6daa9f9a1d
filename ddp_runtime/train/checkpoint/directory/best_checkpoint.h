// SPDX-License-Identifier: Apache-2.0
// The checkpoint with the best evaluation of a run. Used on rank 0 only, except for save().
//
// Note [Best checkpoint]
// It is in <directory>/best, a checkpoint directory, so programs that read the newest of that
// directory read the best. Whether an evaluation is better follows from the one in its manifest, so
// nothing else has to be kept up to date: after an interruption, a resume or another choice of the
// metric, the next evaluation is compared with what is there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/train/checkpoint/directory/directory_claim.h"
#include "ddp_runtime/train/checkpoint/write/save_context.h"
#include "ddp_runtime/train/objective/best_metric.h"
#include "ddp_runtime/train/objective/evaluation_result.h"
#include "ddp_runtime/train/state/state_array.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"

namespace ddp::train {

// The loss, or the negated accuracy, so that less is better; nullopt if it is not finite.
std::optional<double> cost_of(const Evaluation& evaluation, BestMetric metric);
// The same for an evaluation in the state of a checkpoint. Versions that kept only the checkpoint
// with the lowest loss recorded no evaluation, but that loss.
std::optional<double> cost_in(const nlohmann::json& state, BestMetric metric);
// For the state of a checkpoint; values that are not finite are left out.
nlohmann::json evaluation_to_json(const Evaluation& evaluation);

class BestCheckpoint {
 public:
  // `claim` must outlive this object.
  BestCheckpoint(const SaveContext& context, const DirectoryClaim& claim);

  // Whether a checkpoint of this step and run (a name of Lineage) would be the best. Throws
  // ckpt::Error if the directory cannot be read.
  bool wants(std::uint64_t step, const std::string& lineage_run,
             const Evaluation& evaluation) const;

  // Collective. Saves a checkpoint that wants() accepted, with `evaluation` in its state, and then
  // removes the one before it; durable on return. Rank 0 writes the arrays, and each rank its rows
  // of divided ones. Returns on rank 0 why the checkpoint was not saved; empty if it was.
  std::string save(std::uint64_t step, const std::vector<StateArray>& arrays,
                   ckpt::CheckpointInfo info, const Evaluation& evaluation);

  // Sets a best checkpoint of a later step than `step` aside: it belongs to an abandoned branch.
  void abandon_after(std::uint64_t step) const;

  // The checkpoint in best/ if this process has saved one there; otherwise empty.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  ckpt::CheckpointDirectory directory() const;
  void set_aside_others(std::uint64_t step, const std::string& lineage_run) const;
  void commit(const ckpt::SaveId& id, const std::vector<std::string>& reports,
              const ckpt::CheckpointInfo& info);
  void say(const std::vector<std::string>& notes) const;

  const SaveContext context_;
  const DirectoryClaim& claim_;
  const std::filesystem::path best_;
  const BestMetric metric_;
  std::filesystem::path path_;
};

}  // namespace ddp::train
