#pragma once
// Arrays in an HDF5 file of another program. libhdf5 has crashed, hung and overrun its memory on
// damaged files; so it looks at the file in a child process with little memory and time, and only
// says where arrays lie. What it says is checked like a file, and the bytes are read without it.

#include <cstdint>
#include <filesystem>
#include <vector>

#include "hdf5_ckpt/convert/external.h"

namespace ddp::ckpt {

struct ChildLimits {
  std::uint64_t memory_bytes = 1ULL << 30;
  unsigned cpu_seconds = 60;
};

// The contiguous, unfiltered datasets of element types that a checkpoint can hold; sorted by name.
// Throws DamagedError naming anything else in the file (links to elsewhere, external or virtual
// storage, chunks, other types, sizes beyond the file), or how the child came to its end. To be
// called while the process has one thread.
std::vector<ExternalArray> parse_hdf5(const std::filesystem::path& path, std::uint64_t file_bytes,
                                      const ChildLimits& limits = {});

}  // namespace ddp::ckpt
