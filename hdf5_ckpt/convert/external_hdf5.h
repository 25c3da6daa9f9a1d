// SPDX-License-Identifier: Apache-2.0
// Arrays in an HDF5 file of another program. libhdf5 has crashed, hung and overrun its memory on
// damaged files, so it runs in a child process with limited memory and time, which only reports the
// locations of the arrays. The parent checks the report as strictly as a file, and reads the bytes
// without libhdf5.
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

// Returns the contiguous, unfiltered datasets whose element types a checkpoint can hold, sorted by
// name. Throws DamagedError if the file has any other content (links to other files, external or
// virtual storage, chunks, other types, sizes beyond the file) or if the child fails; the message
// names the cause. Call it only while the process has a single thread.
FileContents parse_hdf5(const std::filesystem::path& path, std::uint64_t file_bytes,
                        const ChildLimits& limits = {});

}  // namespace ddp::ckpt
