// SPDX-License-Identifier: Apache-2.0
// Seals the checkpoint of another program, and finds out whether a sealed one is still whole.
//
// Note [What a seal promises]
// seal_checkpoint() reads every file, writes all of them and their names to the disk, and then puts
// the seal in place by a rename. So a seal that is there names only files that are complete and
// durable; a save that was cut off has none, or an old one that its files do not match. The caller
// says that all ranks have saved: a file that another rank has yet to write is not missed.
// Files that are added later are no damage, because programs add to a checkpoint (a model card, a
// conversion).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "hdf5_ckpt/core/file_ops.h"
#include "hdf5_ckpt/core/progress.h"
#include "hdf5_ckpt/seal/seal.h"

namespace ddp::ckpt {

struct SealOptions {
  unsigned threads = 2;
  Progress progress = {};
};

struct SealedContents {
  std::size_t files = 0;
  std::size_t links = 0;
  std::size_t added = 0;  // files and links that the seal does not name
  std::uint64_t bytes = 0;
};

// The place that a name stands for, without links and "..", which may follow a link.
std::filesystem::path real_path(const std::filesystem::path& named);

// Seals `checkpoint`, a directory or a file, in place of an earlier seal. Throws Error if it has
// nothing to seal or changes meanwhile, IoError if it cannot be made durable, DamagedError or
// UnreadableError if it cannot be read; an earlier seal then stays.
SealedContents seal_checkpoint(const std::filesystem::path& checkpoint, const SealOptions& options,
                               FileOps& ops = system_file_ops());

// True if there is a seal, whole or not; false if that cannot be determined.
bool is_sealed(const std::filesystem::path& checkpoint);

// Throws DamagedError if there is none or it is damaged, UnreadableError if that is not known, and
// Error if a newer version wrote it.
Seal read_seal(const std::filesystem::path& checkpoint);

// Reads every byte that the seal names. Throws DamagedError, naming the files that are missing or
// have changed, or one of the exceptions above.
SealedContents verify_sealed(const std::filesystem::path& checkpoint, const SealOptions& options);

}  // namespace ddp::ckpt
