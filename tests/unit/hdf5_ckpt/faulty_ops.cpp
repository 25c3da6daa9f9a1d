// SPDX-License-Identifier: Apache-2.0
// Decides for every call, in one function, whether the fault applies.

#include "tests/unit/hdf5_ckpt/faulty_ops.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace ddp::ckpt::test {
namespace {

int fail(int code) {
  errno = code;
  return -1;
}

}  // namespace

// `success` is the result that Fault::lie reports; `half` does part of the work.
template <typename Real, typename Half>
ssize_t FaultyOps::call(const Call& made, ssize_t success, const Real& real, const Half& half) {
  const std::lock_guard lock(mutex_);
  if (crashed_) return fail(EIO);
  const std::size_t index = calls_.size();
  calls_.push_back(made);
  const bool later = fault_ == Fault::error_from_here_on && index > index_;
  if (index != index_ && !later) return real();
  switch (fault_) {
    case Fault::none:
      return real();
    case Fault::error:
    case Fault::error_from_here_on:
      return fail(code_);
    case Fault::lie:
      return success;
    case Fault::crash_before:
      break;
    case Fault::crash_after:
      real();
      break;
    case Fault::crash_half_written:
      half();
      break;
  }
  crashed_ = true;
  throw Crashed{};
}

template <typename Real>
int FaultyOps::call(const char* what, const std::string& path, const Real& real) {
  return static_cast<int>(call({what, path}, 0, real, [] {}));
}

bool FaultyOps::interrupted(int fd) {
  const std::lock_guard lock(mutex_);
  if (!interrupts_ || crashed_) return false;
  interrupt_next_ = !interrupt_next_;
  if (!interrupt_next_) calls_.push_back({"interrupted", paths_[fd]});
  return !interrupt_next_;
}

int FaultyOps::open(const char* path, int flags, mode_t mode) {
  if ((flags & O_DIRECT) != 0 && !has_direct_open_) return fail(EINVAL);
  const auto real = [&] { return FileOps::open(path, flags, mode); };
  const auto fd =
      static_cast<int>(call({"open", path, 0, (flags & O_DIRECT) != 0}, 0, real, [] {}));
  const std::lock_guard lock(mutex_);
  if (fd >= 0) paths_[fd] = path;
  return fd;
}

int FaultyOps::close(int fd) {
  const std::lock_guard lock(mutex_);
  if (fd < 0) return fail(EBADF);
  // Close the descriptor even after a fault, as a dying process closes its files.
  const std::string path = paths_[fd];
  FileOps::close(fd);
  return call("close", path, [] { return 0; });
}

ssize_t FaultyOps::pwrite(int fd, const void* data, std::size_t size, off_t offset) {
  if (interrupted(fd)) return fail(EINTR);
  if (most_written_ != 0) size = std::min(size, most_written_);
  std::string path;
  {
    const std::lock_guard lock(mutex_);
    path = paths_[fd];
  }
  const bool direct = (::fcntl(fd, F_GETFL) & O_DIRECT) != 0;
  if (!has_direct_write_ && direct) return fail(EINVAL);
  return call(
      {"pwrite", path, size, direct}, static_cast<ssize_t>(size),
      [&] { return FileOps::pwrite(fd, data, size, offset); },
      [&] { FileOps::pwrite(fd, data, size >= 8192 ? 4096 : size / 2, offset); });
}

int FaultyOps::fsync(int fd) {
  if (interrupted(fd)) return fail(EINTR);
  return call("fsync", paths_[fd], [&] { return FileOps::fsync(fd); });
}

int FaultyOps::fallocate(int fd, off_t size) {
  if (!has_fallocate_) return fail(EOPNOTSUPP);
  if (interrupted(fd)) return fail(EINTR);
  return call("fallocate", paths_[fd], [&] { return FileOps::fallocate(fd, size); });
}

int FaultyOps::ftruncate(int fd, off_t size) {
  return call("ftruncate", paths_[fd], [&] { return FileOps::ftruncate(fd, size); });
}

std::int64_t FaultyOps::free_bytes(int fd) {
  return free_bytes_ != -2 ? free_bytes_ : FileOps::free_bytes(fd);
}

int FaultyOps::mkdir(const char* path, mode_t mode) {
  return call("mkdir", path, [&] { return FileOps::mkdir(path, mode); });
}

int FaultyOps::rename(const char* from, const char* to, unsigned flags) {
  if (!has_rename_flags_ && flags != 0) return fail(EINVAL);
  return call("rename", to, [&] { return FileOps::rename(from, to, flags); });
}

int FaultyOps::unlink(const char* path) {
  return call("unlink", path, [&] { return FileOps::unlink(path); });
}

int FaultyOps::rmdir(const char* path) {
  return call("rmdir", path, [&] { return FileOps::rmdir(path); });
}

int FaultyOps::stat(const char* path, struct stat* status) {
  return call("stat", path, [&] { return FileOps::stat(path, status); });
}

int FaultyOps::lstat(const char* path, struct stat* status) {
  return call("lstat", path, [&] { return FileOps::lstat(path, status); });
}

int FaultyOps::list(int directory, std::vector<std::string>& names) {
  return call("list", paths_[directory], [&] { return FileOps::list(directory, names); });
}

int FaultyOps::unlinkat(int directory, const char* name) {
  return call("unlink", paths_[directory] + "/" + name,
              [&] { return FileOps::unlinkat(directory, name); });
}

}  // namespace ddp::ckpt::test
