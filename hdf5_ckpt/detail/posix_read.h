#pragma once
// Reading files of unknown origin with plain system calls.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/file_descriptor.h"

namespace ddp::ckpt {

struct ReadResult {
  std::size_t bytes = 0;  // fewer than asked for: the file ended, or `code` says why
  int code = 0;           // errno value
};

// pread until `bytes` is full, the file ends or an error comes.
ReadResult read_fully(int fd, std::span<std::byte> bytes, std::uint64_t offset) noexcept;

// A regular file opened for reading, and its size.
struct OpenedFile {
  FileDescriptor fd;
  std::uint64_t size = 0;
};

// Opens `name` in `directory`, never following a link, waiting on a pipe or opening a device.
// Throws DamagedError starting with the name ("'rank-0.h5' is a symbolic link"), UnreadableError
// where that says nothing about the file.
OpenedFile open_regular_file(int directory, const std::string& name);

// Throws the Error for a failed call of that errno value: DamagedError if it says that the file is
// not what it should be, UnreadableError if it may be.
[[noreturn]] void throw_read_error(const std::string& text, int code);

}  // namespace ddp::ckpt
