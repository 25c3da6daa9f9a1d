// SPDX-License-Identifier: Apache-2.0
// Arrays in an HDF5 file of another program. libhdf5 runs in a child process (hdf5_child.h), which
// reports the locations of the arrays. The parent checks the report as strictly as a file. It reads
// plain bytes without libhdf5; a second child decodes the others into a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "hdf5_ckpt/convert/external.h"
#include "hdf5_ckpt/convert/hdf5_child.h"

namespace ddp::ckpt {

// Returns the datasets whose element types a checkpoint can hold. Those whose values cannot be read
// (external and virtual storage, filters that are plugins) are unreadable; links to other places,
// texts and records are left out. Throws DamagedError if sizes reach beyond the file or the child
// fails. Call it only while the process has a single thread.
FileContents parse_hdf5(const std::filesystem::path& path, std::uint64_t file_bytes,
                        const ChildLimits& limits = {});

// Where to write the values of an encoded array.
struct Decoding {
  const ExternalArray* array = nullptr;
  std::uint64_t offset = 0;
};

// Writes the values of encoded arrays into the file `to`. Throws DamagedError. Call it only while
// the process has a single thread.
void decode_hdf5(const std::filesystem::path& path, std::span<const Decoding> arrays, int to);

}  // namespace ddp::ckpt
