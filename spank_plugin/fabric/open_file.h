// SPDX-License-Identifier: Apache-2.0
// A file opened for reading, closed at the end of its scope.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace ddp::fabric {

class OpenFile {
 public:
  // Non-blocking, so that a pipe cannot stop the reader.
  explicit OpenFile(const std::filesystem::path& file) noexcept;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  bool is_regular() const noexcept;

  // Owned by root, and not writable by other users.
  bool is_roots_alone() const noexcept;

  // Up to `room` bytes; nothing after an error, as when the file could not be opened.
  std::optional<std::size_t> read(char* into, std::size_t room) const noexcept;

 private:
  int fd_;
};

}  // namespace ddp::fabric
