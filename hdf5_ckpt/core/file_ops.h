// SPDX-License-Identifier: Apache-2.0
// All system calls that a save, or the inspection of a save, makes on the target file system,
// except reading files. Tests override members to make any call fail, transfer fewer bytes, pretend
// success or pause; see Note [Crash safety] in checkpoint_directory.h.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

struct stat;

namespace ddp::ckpt {

// Each member makes the system call of that name, and returns -1 and sets errno on failure. Paths
// are absolute or relative to the working directory. pwrite() and sync may be called from several
// threads at the same time.
class FileOps {
 public:
  FileOps() = default;
  FileOps(const FileOps&) = delete;
  FileOps& operator=(const FileOps&) = delete;
  virtual ~FileOps() = default;

  virtual int open(const char* path, int flags, mode_t mode);
  virtual int close(int fd);
  virtual ssize_t pwrite(int fd, const void* data, std::size_t size, off_t offset);
  virtual int fsync(int fd);
  // fallocate(fd, 0, 0, size); not posix_fallocate, which writes every block where the file system
  // does not support reservation.
  virtual int fallocate(int fd, off_t size);
  virtual int ftruncate(int fd, off_t size);
  // Bytes that an unprivileged user may still write; -1 if the file system does not report it.
  virtual std::int64_t free_bytes(int fd);
  virtual int mkdir(const char* path, mode_t mode);
  // renameat2 with RENAME_NOREPLACE, RENAME_EXCHANGE or 0.
  virtual int rename(const char* from, const char* to, unsigned flags);
  virtual int unlink(const char* path);
  virtual int rmdir(const char* path);
  virtual int stat(const char* path, struct stat* status);
  // Does not follow a link.
  virtual int lstat(const char* path, struct stat* status);
  // The names in an open directory, except "." and "..".
  virtual int list(int directory, std::vector<std::string>& names);
  // A file in an open directory.
  virtual int unlinkat(int directory, const char* name);
};

// The real system calls.
FileOps& system_file_ops();

}  // namespace ddp::ckpt
