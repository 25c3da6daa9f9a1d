// SPDX-License-Identifier: Apache-2.0
// Reads whole files on several threads, a large one by several at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "hdf5_ckpt/core/progress.h"

namespace ddp::ckpt {

struct FileToRead {
  std::filesystem::path path;
  std::uint64_t bytes = 0;  // that it should have
};

enum class ReadFrom {
  cache,  // what has just been written
  disk,   // bypasses the page cache where the file system can
};

// Returns the CRC-32C of the first `bytes` bytes of each file. Throws UnreadableError, or
// DamagedError if one is shorter, gone or no regular file.
std::vector<std::uint32_t> file_checksums(std::span<const FileToRead> files, ReadFrom from,
                                          unsigned threads, const Progress& progress);

}  // namespace ddp::ckpt
