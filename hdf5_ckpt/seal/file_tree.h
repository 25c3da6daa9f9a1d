// SPDX-License-Identifier: Apache-2.0
// What is in a checkpoint of another program, without following links.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace ddp::ckpt {

// When a file was last changed, in nanoseconds since 1970.
std::int64_t modified_ns(const struct stat& status);

struct FoundFile {
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::uint64_t inode = 0;
  bool operator==(const FoundFile&) const = default;
};

// By path below the checkpoint; a checkpoint that is one file has one with an empty path.
struct FileTree {
  std::map<std::string, FoundFile> files;
  std::map<std::string, std::string> links;        // and where they point to
  std::vector<std::string> others;                 // pipes, sockets, devices
  std::vector<std::filesystem::path> directories;  // with the checkpoint itself
  bool operator==(const FileTree&) const = default;
};

// Leaves out its seal, and what NFS keeps of deleted files that are open. Throws IoError if
// something cannot be listed, DamagedError if there is no such file or directory, Error if there
// are more than `most` entries.
FileTree read_file_tree(const std::filesystem::path& checkpoint, std::size_t most);

}  // namespace ddp::ckpt
