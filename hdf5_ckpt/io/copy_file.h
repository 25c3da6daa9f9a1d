// SPDX-License-Identifier: Apache-2.0
// Copies a file between file systems.
#pragma once

#include <filesystem>

#include "hdf5_ckpt/core/file_ops.h"

namespace ddp::ckpt {

// Copies `from` to the new file `to`, whose content is durable on return; its directory entry is up
// to the caller. Both files bypass the page cache where their file systems support it. Throws
// DamagedError or UnreadableError if `from` cannot be read, IoError if `to` cannot be written, and
// leaves no `to` behind.
void copy_file_durably(FileOps& ops, const std::filesystem::path& from,
                       const std::filesystem::path& to, unsigned threads);

}  // namespace ddp::ckpt
