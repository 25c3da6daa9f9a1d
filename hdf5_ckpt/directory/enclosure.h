// SPDX-License-Identifier: Apache-2.0
// Says whether a directory belongs to checkpoints that are there already. A run that starts in such
// a place has probably been given a wrong path, would begin from scratch, and mixes with the other.
#pragma once

#include <cstdint>
#include <filesystem>

namespace ddp::ckpt {

struct Enclosure {
  enum class Kind : std::uint8_t {
    none,        // nothing speaks against it: a new place, or a directory of checkpoints
    checkpoint,  // it is a checkpoint itself
    within,      // it is somewhere inside a checkpoint
    among,       // it is somewhere in the checkpoint directory of a run, or keeps its best ones
    kept_name,  // it holds no checkpoint, and has a name that one, or a run's best ones, would have
  };
  Kind kind = Kind::none;
  std::filesystem::path checkpoint;  // the checkpoint itself, of `checkpoint` and `within`
  // The checkpoint directory of the run; empty if there is none: a checkpoint may have been copied
  // to a place of its own.
  std::filesystem::path run;
};

// Never throws for what it cannot read: that says nothing about the directory.
Enclosure enclosure_of(const std::filesystem::path& directory);

// Whether a checkpoint, or those that a run keeps as its best, may have the name of this path in
// the directory of the run, which removes old ones by their names.
bool has_kept_name(const std::filesystem::path& path);

}  // namespace ddp::ckpt
