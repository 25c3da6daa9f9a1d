// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/best_checkpoint.h"

#include <fmt/format.h>

#include <utility>

#include "ddp_runtime/train/array_views.h"
#include "hdf5_ckpt/retention.h"

namespace ddp::train {

BestCheckpoint::BestCheckpoint(const std::filesystem::path& directory, ckpt::OwnerTag owner,
                               const DirectoryClaim& claim)
    : directory_(directory / "best"), owner_(std::move(owner)), claim_(claim) {}

// The previous best checkpoint is removed only after the new one is safe. The step may already
// exist: a run that was killed after its best step repeats it after resuming.
void BestCheckpoint::save(std::uint64_t step, const std::vector<NamedTensor>& arrays,
                          const ckpt::CheckpointInfo& info) {
  ckpt::SaveOptions saving;
  saving.if_exists = ckpt::IfExists::replace;
  saving.before_publishing = [this] { claim_.require(); };
  ckpt::CheckpointDirectory directory(directory_, std::move(saving));
  const auto saved = directory.save(step, owner_, array_views(on_host(arrays)), info);
  for (const auto& note : saved.notes) fmt::print("checkpoint: {}\n", note);
  path_ = saved.path;
  set_aside_after(step);
  ckpt::Retention retention(directory_, owner_);
  retention.remember_across_restarts();
  for (const auto& note : retention.apply({1, step}).notes) fmt::print("checkpoint: {}\n", note);
}

void BestCheckpoint::set_aside_after(std::uint64_t step) const {
  for (const auto& name :
       ckpt::CheckpointDirectory(directory_).set_aside_later_than(step, owner_)) {
    fmt::print("checkpoint: the best checkpoint of an abandoned branch is kept as {}\n",
               name.string());
  }
}

}  // namespace ddp::train
