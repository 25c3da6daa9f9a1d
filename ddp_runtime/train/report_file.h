// SPDX-License-Identifier: Apache-2.0
// The files of a report on disk that are read again, or that grow: whole or not at all, and never
// through a link that another user has put in their place. The others are base/atomic_file.h's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace ddp::train {

// The contents of a regular file of at most `most_bytes`, or an empty text if there is none.
std::string read_if_there(const std::filesystem::path& file, std::uintmax_t most_bytes);

// A text file that grows by whole lines.
class LineFile {
 public:
  // Starts a new file with `head` and those lines of the file that is there for which `keep` is
  // true, in their order; a last line without its end is dropped. Throws RuntimeError.
  LineFile(const std::filesystem::path& file, std::string_view head,
           const std::function<bool(std::string_view line)>& keep);

  // Adds lines, each with its end, all or none. Throws RuntimeError.
  void append(std::string_view lines);

 private:
  std::filesystem::path file_;
  FileDescriptor fd_;
  std::int64_t size_ = 0;
};

}  // namespace ddp::train
