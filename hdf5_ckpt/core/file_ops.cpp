// SPDX-License-Identifier: Apache-2.0
// The system calls of a save.

#include "hdf5_ckpt/core/file_ops.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <limits>
#include <memory>
#include <string_view>

namespace ddp::ckpt {

int FileOps::open(const char* path, int flags, mode_t mode) {
  return ::open(path, flags, mode);
}
int FileOps::close(int fd) {
  return ::close(fd);
}

ssize_t FileOps::pwrite(int fd, const void* data, std::size_t size, off_t offset) {
  return ::pwrite(fd, data, size, offset);
}

int FileOps::fsync(int fd) {
  return ::fsync(fd);
}
int FileOps::fallocate(int fd, off_t size) {
  return ::fallocate(fd, 0, 0, size);
}
int FileOps::ftruncate(int fd, off_t size) {
  return ::ftruncate(fd, size);
}

std::int64_t FileOps::free_bytes(int fd) {
  struct statvfs vfs = {};
  if (::fstatvfs(fd, &vfs) != 0 || vfs.f_blocks == 0) return -1;
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const std::uint64_t unit = vfs.f_frsize != 0 ? vfs.f_frsize : 1;
  return static_cast<std::int64_t>(vfs.f_bavail > kMax / unit ? kMax : vfs.f_bavail * unit);
}

int FileOps::mkdir(const char* path, mode_t mode) {
  return ::mkdir(path, mode);
}

int FileOps::rename(const char* from, const char* to, unsigned flags) {
  return ::renameat2(AT_FDCWD, from, AT_FDCWD, to, flags);
}

int FileOps::unlink(const char* path) {
  return ::unlink(path);
}
int FileOps::rmdir(const char* path) {
  return ::rmdir(path);
}

int FileOps::stat(const char* path, struct stat* status) {
  return ::stat(path, status);
}
int FileOps::lstat(const char* path, struct stat* status) {
  return ::lstat(path, status);
}

int FileOps::list(int directory, std::vector<std::string>& names) {
  // Use a separate descriptor, because reading moves its position and closing the stream closes it.
  const int own = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (own < 0) return -1;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(own), ::closedir);
  if (stream == nullptr) {
    ::close(own);
    return -1;
  }
  while (true) {
    errno = 0;
    const dirent* const entry = ::readdir(stream.get());
    if (entry == nullptr) return errno == 0 ? 0 : -1;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
}

int FileOps::unlinkat(int directory, const char* name) {
  return ::unlinkat(directory, name, 0);
}

FileOps& system_file_ops() {
  static FileOps ops;
  return ops;
}

}  // namespace ddp::ckpt
