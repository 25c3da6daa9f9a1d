#pragma once
// From which checkpoint a run goes on, by Note [One line of checkpoints] in lineage.h.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hdf5_ckpt/checkpoint.h"
#include "hdf5_ckpt/checkpoint_directory.h"
#include "hdf5_ckpt/lineage.h"

namespace ddp::ckpt {

struct Resumption {
  Checkpoint checkpoint;           // accepted
  Lineage lineage;                 // of what the run saves next
  std::vector<std::string> notes;  // what was passed over, and why not PATH itself
  // What the run leaves behind: CheckpointDirectory::set_aside() before the next save.
  std::vector<std::uint64_t> set_aside;
  bool in_directory = false;  // it is one of the directory's own
};

// `accept` loads a checkpoint, or throws DamagedError if its bytes are wrong, so that an older one
// is tried. Nothing is changed on the disk.

// The newest whole one; nothing if there is none at all. Throws Error if there are some and none is
// whole, MismatchError if all have been set aside.
std::optional<Resumption> resume_newest(const CheckpointDirectory& directory,
                                        const std::function<void(const Checkpoint&)>& accept);

// The checkpoint `path`, or the newest one of `directory` (which may be null) that came from it.
// Throws MismatchError if `directory` holds another run's.
Resumption resume_path(const CheckpointDirectory* directory, const std::filesystem::path& path,
                       const std::function<void(const Checkpoint&)>& accept);

}  // namespace ddp::ckpt
