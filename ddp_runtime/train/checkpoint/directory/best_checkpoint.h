// SPDX-License-Identifier: Apache-2.0
// The checkpoints with the best evaluations of a run. Used on rank 0 only, except for save().
//
// Note [Best checkpoints]
// The best checkpoint is the only one in <directory>/best, so programs that read the newest of that
// directory read the best. The others are in <directory>/next-best. Which one is better follows
// from the evaluation in each manifest, so nothing else has to be kept up to date: after an
// interruption, a resume or another choice of the metric, the next evaluation sorts them again.
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

// A kept checkpoint. Lower costs are better; nullopt if the checkpoint has no value of the metric.
struct BestEntry {
  ckpt::Candidate checkpoint;
  std::optional<double> cost;
  bool in_best = false;  // in best/, not in next-best/
};

// The loss, or the negated accuracy; nullopt if it is not finite.
std::optional<double> cost_of(const Evaluation& evaluation, BestMetric metric);
// The same for an evaluation in the state of a checkpoint. Versions that kept only the checkpoint
// with the lowest loss recorded no evaluation, but that loss.
std::optional<double> cost_in(const nlohmann::json& state, BestMetric metric);
// For the state of a checkpoint; values that are not finite are left out.
nlohmann::json evaluation_to_json(const Evaluation& evaluation);

// Sorts the best first. An entry is not better than an earlier step of equal cost.
void sort_best_first(std::vector<BestEntry>& entries);
// Whether a new checkpoint of this cost is among the best `keep`.
bool is_among_best(std::optional<double> cost, const std::vector<BestEntry>& entries,
                   std::size_t keep);

class BestCheckpoint {
 public:
  // `claim` must outlive this object.
  BestCheckpoint(const SaveContext& context, const DirectoryClaim& claim);

  // Whether a checkpoint of this step and run (a name of Lineage) would be kept. Throws ckpt::Error
  // if the directories cannot be read.
  bool wants(std::uint64_t step, const std::string& lineage_run,
             const Evaluation& evaluation) const;

  // Collective. Saves a checkpoint that wants() accepted, with `evaluation` in its state, and then
  // removes the surplus one; durable on return. Rank 0 writes the arrays, and each rank its rows of
  // divided ones. Returns on rank 0 why the checkpoint was not saved; empty if it was.
  std::string save(std::uint64_t step, const std::vector<StateArray>& arrays,
                   ckpt::CheckpointInfo info, const Evaluation& evaluation);

  // Sets best checkpoints of later steps than `step` aside, because they belong to an abandoned
  // branch. Moves the best of the others to best/.
  void abandon_after(std::uint64_t step) const;

  // The checkpoint in best/ if this process has saved one there; otherwise empty.
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  // A save that has begun.
  struct Draft {
    ckpt::SaveId id;
    bool is_best = false;
  };
  Draft begin(std::uint64_t step, const ckpt::CheckpointInfo& info, const Evaluation& evaluation);
  ckpt::CheckpointDirectory directory_of(const Draft& draft) const;
  void commit(const Draft& draft, const std::vector<std::string>& reports,
              const ckpt::CheckpointInfo& info);
  std::vector<BestEntry> entries() const;
  std::vector<BestEntry> comparable(std::uint64_t step, const std::string& lineage_run) const;
  void set_aside_after(std::uint64_t step) const;
  void set_aside_others(std::uint64_t step, const std::string& lineage_run) const;
  void arrange() const;
  void remove_surplus() const;

  const SaveContext context_;
  const DirectoryClaim& claim_;
  std::filesystem::path best_;
  std::filesystem::path next_best_;
  std::size_t keep_;
  BestMetric metric_;
  std::filesystem::path path_;
};

}  // namespace ddp::train
