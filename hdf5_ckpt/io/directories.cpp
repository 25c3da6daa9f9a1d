// SPDX-License-Identifier: Apache-2.0
// Directories and small files through FileOps, with the fsync of the parent that a new name needs.

#include "hdf5_ckpt/io/directories.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/io/target_file.h"

namespace ddp::ckpt {

namespace fs = std::filesystem;

namespace {

bool is_directory(FileOps& ops, const fs::path& path) {
  struct stat status = {};
  if (ops.stat(path.c_str(), &status) == 0) return S_ISDIR(status.st_mode);
  if (errno != ENOENT && errno != ENOTDIR) throw IoError("inspect", path, errno);
  return false;
}

}  // namespace

std::filesystem::path absolute_directory(const std::filesystem::path& directory) {
  const std::filesystem::path whole = std::filesystem::absolute(directory).lexically_normal();
  return whole.has_filename() ? whole : whole.parent_path();
}

void sync_directory(FileOps& ops, const fs::path& directory) {
  const int fd = ops.open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (fd < 0) throw IoError("open", directory, errno);
  int result = 0;
  do {
    result = ops.fsync(fd);
  } while (result != 0 && errno == EINTR);
  // EINVAL means that the file system does not support fsync of a directory and makes entries
  // durable in its own way.
  const int code = result != 0 && errno != EINVAL ? errno : 0;
  ops.close(fd);
  if (code != 0) throw IoError("sync the directory", directory, code);
}

void make_directories(FileOps& ops, const fs::path& directory) {
  if (directory.empty() || directory == directory.root_path() || is_directory(ops, directory))
    return;
  const fs::path parent = directory.parent_path();
  make_directories(ops, parent);
  if (ops.mkdir(directory.c_str(), 0777) != 0) {
    if (errno != EEXIST) throw IoError("create the directory", directory, errno);
    // Another rank created it first, or a file has this name.
    if (!is_directory(ops, directory)) throw IoError("create the directory", directory, ENOTDIR);
  }
  sync_directory(ops, parent.empty() ? fs::path(".") : parent);
}

void write_durable_file(FileOps& ops, const fs::path& path, std::string_view text) {
  const auto piece = std::as_bytes(std::span(text));
  write_durable_pieces(ops, path, {&piece, 1});
}

void replace_durable_file(FileOps& ops, const fs::path& path, const fs::path& draft,
                          std::string_view text) {
  ops.unlink(draft.c_str());  // a process with the same id may have died here
  write_durable_file(ops, draft, text);
  if (ops.rename(draft.c_str(), path.c_str(), 0) != 0) {
    const int code = errno;
    ops.unlink(draft.c_str());
    throw IoError("replace", path, code);
  }
  sync_directory(ops, path.parent_path());
}

void write_durable_pieces(FileOps& ops, const fs::path& path,
                          std::span<const std::span<const std::byte>> pieces) {
  TargetFile file(ops, path, false);
  std::uint64_t at = 0;
  for (const auto piece : pieces) {
    file.write(piece, at);
    at += piece.size();
  }
  file.sync();
  file.close();
}

int rename_no_replace(FileOps& ops, const fs::path& from, const fs::path& to) {
  if (ops.rename(from.c_str(), to.c_str(), RENAME_NOREPLACE) == 0) return 0;
  if (errno != EINVAL && errno != ENOSYS) return errno;
  if (ops.rename(from.c_str(), to.c_str(), 0) == 0) return 0;
  return errno == ENOTEMPTY || errno == ENOTDIR ? EEXIST : errno;
}

std::vector<std::string> names_in_directory(FileOps& ops, const fs::path& directory) {
  std::vector<std::string> names;
  const int fd = ops.open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  if (fd < 0) {
    if (errno == ENOENT) return names;
    throw IoError("list", directory, errno);
  }
  const int code = ops.list(fd, names) != 0 ? errno : 0;
  ops.close(fd);
  if (code != 0) throw IoError("list", directory, code);
  return names;
}

bool is_there(FileOps& ops, const fs::path& path) {
  struct stat status = {};
  return ops.lstat(path.c_str(), &status) == 0;
}

int remove_directory(FileOps& ops, const fs::path& directory) {
  const int fd = ops.open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
  if (fd < 0) {
    if (errno == ENOENT) return 0;
    if (errno != ELOOP && errno != ENOTDIR) return errno;
    return ops.unlink(directory.c_str()) != 0 ? errno : 0;
  }
  std::vector<std::string> names;
  int code = ops.list(fd, names) != 0 ? errno : 0;
  for (const std::string& name : names)
    if (ops.unlinkat(fd, name.c_str()) != 0 && code == 0) code = errno;
  ops.close(fd);
  if (ops.rmdir(directory.c_str()) != 0 && code == 0) code = errno;
  return code;
}

}  // namespace ddp::ckpt
