// SPDX-License-Identifier: Apache-2.0
// Chooses the checkpoint that a run resumes from, per Note [One line of checkpoints] in lineage.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hdf5_ckpt/core/lineage.h"
#include "hdf5_ckpt/directory/checkpoint_directory.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::ckpt {

struct Resumption {
  Checkpoint checkpoint;  // accepted
  Lineage lineage;        // for the checkpoints that the run saves next
  std::vector<std::string>
      notes;  // skipped checkpoints, and the reason if PATH itself was not used
  // Steps that the run abandons: pass them to CheckpointDirectory::set_aside() before the next
  // save.
  std::vector<std::uint64_t> set_aside;
  bool in_directory = false;  // the checkpoint is in the directory itself
};

// In both functions, `accept` loads a checkpoint, or throws DamagedError if its bytes are wrong, so
// that an older one is tried. Neither changes the disk.

// Resumes from the newest whole checkpoint. Returns nullopt if there is none at all. Throws Error
// if there are some and none is whole, MismatchError if all have been set aside.
std::optional<Resumption> resume_newest(const CheckpointDirectory& directory,
                                        const std::function<void(const Checkpoint&)>& accept);

// Resumes from the checkpoint `path`, or from the newest one of `directory` (which may be null)
// that was reached from it. Throws MismatchError if `directory` belongs to another run.
Resumption resume_path(const CheckpointDirectory* directory, const std::filesystem::path& path,
                       const std::function<void(const Checkpoint&)>& accept);

}  // namespace ddp::ckpt
