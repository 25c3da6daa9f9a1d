// SPDX-License-Identifier: Apache-2.0
// A file opened for reading, closed at the end of its scope.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

namespace ddp {

class OpenFile {
 public:
  // Non-blocking, so that a pipe cannot stop the reader.
  explicit OpenFile(const std::filesystem::path& file) noexcept;
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile();

  bool is_regular() const noexcept;

  // True if root owns the file and other users cannot write to it.
  bool is_roots_alone() const noexcept;

  // Reads up to `room` bytes. Returns nullopt after an error, including a file that could not be
  // opened.
  std::optional<std::size_t> read(char* into, std::size_t room) const noexcept;

 private:
  int fd_;
};

}  // namespace ddp
