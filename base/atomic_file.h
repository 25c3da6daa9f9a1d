// SPDX-License-Identifier: Apache-2.0
// Files for others to read: whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "base/file_descriptor.h"

namespace ddp {

// A new file of a random name beside `path`, until it takes its name: a reader never sees half a
// file, a full disk leaves the old one, and links that a stranger planted are replaced and not
// followed. All of it throws RuntimeError with the reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  // Removes it if it was not published.
  ~AtomicFile();

  void write(std::string_view content);
  // Flushes it to the device and renames it. Returns the file, open for writing at its end.
  FileDescriptor publish();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  std::string temporary_;  // empty once it is published
  FileDescriptor file_;
};

// Writes and publishes such a file.
void replace_file(const std::string& path, std::string_view content);

// The same, but what is not a regular file, as /dev/stdout or a FIFO, is written to. Not for files
// in directories that others can write.
void write_file(const std::string& path, std::string_view content);

}  // namespace ddp
