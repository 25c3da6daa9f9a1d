// SPDX-License-Identifier: Apache-2.0
// Report files that are read again, or that grow. Each is replaced completely or not at all, and
// never through a link that another user has put in its place. base/atomic_file.h writes the other
// report files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace ddp::train {

// The contents of a regular file of at most `most_bytes`; an empty string if the file does not
// exist.
std::string read_if_there(const std::filesystem::path& file, std::uintmax_t most_bytes);

// A text file that grows by whole lines.
class LineFile {
 public:
  // Starts a new file with `head`, followed by the lines of the existing file for which `keep`
  // returns true, in their order. Drops an incomplete last line. Throws RuntimeError.
  LineFile(const std::filesystem::path& file, std::string_view head,
           const std::function<bool(std::string_view line)>& keep);

  // Appends complete lines, each with its line break: all or none. If the file was deleted, all of
  // its lines are written again. Throws RuntimeError.
  void append(std::string_view lines);

 private:
  void restore();

  std::filesystem::path file_;
  FileDescriptor fd_;
  std::int64_t size_ = 0;
};

}  // namespace ddp::train
