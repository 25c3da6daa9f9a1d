// SPDX-License-Identifier: Apache-2.0
// Atomic file replacement: a reader sees the old file or the complete new one.
#pragma once

#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace ddp {

// Writes a temporary file with a random name beside `path` and renames it to `path` when it is
// complete. A reader never sees a partial file, a full disk leaves the old file in place, and a
// symbolic link planted at `path` is replaced, not followed. All functions throw RuntimeError with
// the reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  // Removes the temporary file if it was not published.
  ~AtomicFile();

  void write(std::string_view content);
  // Flushes the file to the device and renames it. Returns the file, open for writing at its end.
  FileDescriptor publish();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  std::string temporary_;  // empty once the file is published
  FileDescriptor file_;
};

// Replaces the file at `path` with one that holds `content`.
void replace_file(const std::string& path, std::string_view content);

// Replaces a regular file; writes directly to anything else, such as /dev/stdout or a FIFO. Not for
// files in directories that other users can write to.
void write_file(const std::string& path, std::string_view content);

}  // namespace ddp
