// SPDX-License-Identifier: Apache-2.0
// Reads files of unknown origin with plain system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace ddp::ckpt {

struct ReadResult {
  std::size_t bytes = 0;  // fewer than requested: end of file, or `code` gives the reason
  int code = 0;           // errno value
};

// Calls pread until `bytes` is full, the file ends or an error occurs.
ReadResult read_fully(int fd, std::span<std::byte> bytes, std::uint64_t offset) noexcept;

// A regular file opened for reading, and its size.
struct OpenedFile {
  FileDescriptor fd;
  std::uint64_t size = 0;
};

// Opens `name` in `directory` without ever following a link, blocking on a pipe or opening a
// device. Throws DamagedError starting with the name ("'rank-0.h5' is a symbolic link"), or
// UnreadableError if the file may be valid.
OpenedFile open_regular_file(int directory, const std::string& name);
// The same for a path that has a parent.
OpenedFile open_regular_file(const std::filesystem::path& path);
// The same; the message has the whole path.
OpenedFile open_named_file(const std::filesystem::path& path);

// Returns the content of a file. Throws DamagedError if it has more than `most` bytes, or an error
// of reading; `name` is for messages.
std::string text_of(const OpenedFile& file, std::string_view name, std::size_t most);

// Throws the exception for the errno value of a failed call: DamagedError if the value means that
// the file is not valid, UnreadableError if the file may be valid.
[[noreturn]] void throw_read_error(const std::string& text, int code);

}  // namespace ddp::ckpt
