// SPDX-License-Identifier: Apache-2.0
// Arrays in an HDF5 file of another program. libhdf5 has crashed, hung and overrun its memory on
// damaged files; so it runs in a child process with limited memory and time, which only reports
// where the arrays are. Its report is checked as strictly as a file, and the bytes are read without
// libhdf5.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "hdf5_ckpt/convert/external.h"

namespace ddp::ckpt {

struct ChildLimits {
  std::uint64_t memory_bytes = 1ULL << 30;
  unsigned cpu_seconds = 60;
};

// The contiguous, unfiltered datasets of element types that a checkpoint can hold, sorted by name.
// Throws DamagedError naming anything else in the file (links to other files, external or virtual
// storage, chunks, other types, sizes beyond the file), or the way the child terminated. Call it
// only while the process has a single thread.
std::vector<ExternalArray> parse_hdf5(const std::filesystem::path& path, std::uint64_t file_bytes,
                                      const ChildLimits& limits = {});

}  // namespace ddp::ckpt
