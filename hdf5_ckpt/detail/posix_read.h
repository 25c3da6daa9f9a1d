#pragma once
// Reading files of unknown origin with plain system calls.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "hdf5_ckpt/detail/unique_fd.h"

namespace ddp::ckpt {

struct ReadResult {
  std::size_t bytes = 0;  // fewer than asked for: the file ended, or `code` says why
  int code = 0;           // errno value
};

// pread until `bytes` is full, the file ends or an error comes.
ReadResult read_fully(int fd, std::span<std::byte> bytes, std::uint64_t offset) noexcept;

// A regular file opened for reading, and its size.
struct OpenedFile {
  UniqueFd fd;
  std::uint64_t size = 0;
};

// Opens `name` in `folder`, never following a link, waiting on a pipe or opening a device. Throws
// DamagedError starting with the name ("'rank-0.h5' is a symbolic link"), IoError where this
// process, not the file, is at fault (no descriptors, no memory).
OpenedFile open_regular_file(int folder, const std::string& name);

// True for errno values that say nothing about the file.
bool is_own_fault(int code) noexcept;

}  // namespace ddp::ckpt
