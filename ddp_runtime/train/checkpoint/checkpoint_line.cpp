// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/checkpoint_line.h"

#include <system_error>
#include <utility>

namespace ddp::train {

void CheckpointLine::continue_after(const ResumedRun& resumed) {
  newest_ = resumed.checkpoint;
  next_ = resumed.lineage;
  parent_ = resumed.parent;
  earlier_states_ = resumed.states;
}

void CheckpointLine::add(const SaveResult& result) {
  if (!result.path.empty()) newest_ = result.path;
  if (!result.problem.empty()) return;
  if (next_.parent != result.step) parent_ = std::exchange(next_.parent, result.step);
  durable_ = {static_cast<std::int64_t>(result.step), static_cast<std::int64_t>(result.epoch)};
}

ckpt::Lineage CheckpointLine::lineage_at(std::uint64_t step) const {
  auto lineage = next_;
  if (lineage.parent == step) lineage.parent = parent_;
  return lineage;
}

void CheckpointLine::replace(std::int64_t step, const std::filesystem::path& directory,
                             ckpt::CheckpointInfo& info) const {
  std::error_code ignored;
  info.replaces_step = step == durable_.step &&
                       std::filesystem::equivalent(newest_.parent_path(), directory, ignored);
  if (info.replaces_step && info.lineage) info.lineage->replaced = earlier_states_;
}

}  // namespace ddp::train
