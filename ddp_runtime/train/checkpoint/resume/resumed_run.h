// SPDX-License-Identifier: Apache-2.0
// Rank 0's part of resuming: chooses a checkpoint, loads it, reports how the run differs from the
// one that saved it, and abandons the checkpoints that are not on the way to it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "ddp_runtime/train/checkpoint/directory/best_checkpoint.h"
#include "ddp_runtime/train/checkpoint/local/memory_restore.h"
#include "ddp_runtime/train/checkpoint/write/save_context.h"
#include "ddp_runtime/train/state/training_state.h"
#include "hdf5_ckpt/core/lineage.h"

namespace ddp::train {

// What a run resumes from, and where it saves.
struct ResumeSource {
  const SaveContext& context;
  const SaveTarget* target;  // null if the run does not save
  const BestCheckpoint& best;
  const MemoryCopy* copy = nullptr;  // to be loaded instead, if it is whole
};

struct ResumedRun {
  std::filesystem::path checkpoint;
  ckpt::Lineage lineage;  // of the next checkpoint
  // The step before it in its line, also of a checkpoint that takes its place.
  std::optional<std::uint64_t> parent;
  std::vector<std::uint32_t> states;  // for ckpt::Lineage::replaced of that one
  // JSON for the other ranks: the "position", the values of the "user", and "durable", the step of
  // the newest checkpoint in the directory, or -1.
  std::string text;
};

// On rank 0, while the others are in follow_leader(): loads the checkpoint that options.resume
// selects into `state`. Returns nullopt if there is none. All bytes of the checkpoint have been
// verified. Throws UsageError if the run cannot resume from it.
std::optional<ResumedRun> resume_on_leader(const ResumeSource& source, TrainingState& state);

}  // namespace ddp::train
