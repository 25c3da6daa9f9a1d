// SPDX-License-Identifier: Apache-2.0
// Uses two descriptors for one file: one uses the page cache, and one bypasses it. Their pieces
// never share a page, so they need no ordering, and fsync covers both.

#include "hdf5_ckpt/io/target_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <utility>

#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/io/aligned_buffer.h"

namespace ddp::ckpt {

TargetFile::TargetFile(FileOps& ops, std::filesystem::path path, bool direct_io)
    : ops_(ops), path_(std::move(path)) {
  constexpr int kFlags = O_WRONLY | O_CLOEXEC | O_NOFOLLOW;
  fd_ = ops_.open(path_.c_str(), kFlags | O_CREAT | O_EXCL, 0666);
  if (fd_ < 0) throw IoError("create", path_, errno);
  if (direct_io) direct_fd_ = ops_.open(path_.c_str(), kFlags | O_DIRECT, 0);
  direct_works_ = direct_fd_ >= 0;
}

TargetFile::~TargetFile() {
  try {
    close_descriptor(direct_fd_);
    close_descriptor(fd_);
    if (!keep_) ops_.unlink(path_.c_str());
  } catch (...) {
    // Ignore the failure: the directory and its contents are removed later.
  }
}

void TargetFile::reserve(std::uint64_t size) {
  // Fail with a clear error before taking space from other users of the disk.
  const std::int64_t free = ops_.free_bytes(fd_);
  if (free >= 0 && static_cast<std::uint64_t>(free) < size)
    throw IoError(fmt::format("reserve {} bytes ({} are free) for", size, free), path_, ENOSPC);
  int result = 0;
  do {
    result = ops_.fallocate(fd_, static_cast<off_t>(size));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return;
  if (errno != EOPNOTSUPP && errno != ENOSYS)
    throw IoError(fmt::format("reserve {} bytes for", size), path_, errno);
  truncate(size);
}

void TargetFile::write(std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const bool direct =
        direct_works_ && bytes.size() >= kAlignment && begins_aligned(bytes.data(), offset);
    const std::size_t size = direct ? bytes.size() / kAlignment * kAlignment : bytes.size();
    const ssize_t written =
        ops_.pwrite(direct ? direct_fd_ : fd_, bytes.data(), size, static_cast<off_t>(offset));
    if (written > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    } else if (written < 0 && direct && errno == EINVAL) {
      // This file system accepts O_DIRECT but fails the write, or requires a larger alignment.
      direct_works_ = false;
    } else if (written == 0 || errno != EINTR) {
      throw IoError(fmt::format("write {} bytes at offset {} of", size, offset), path_,
                    written == 0 ? EIO : errno);
    }
  }
}

void TargetFile::truncate(std::uint64_t size) {
  if (ops_.ftruncate(fd_, static_cast<off_t>(size)) != 0)
    throw IoError(fmt::format("set the size to {} bytes of", size), path_, errno);
}

void TargetFile::sync() {
  // A failed fsync is final: the kernel may have dropped the pages, and a second call would falsely
  // succeed.
  int result = 0;
  do {
    result = ops_.fsync(fd_);
  } while (result != 0 && errno == EINTR);
  if (result != 0) throw IoError("sync", path_, errno);
}

void TargetFile::close() {
  const int direct_code = close_descriptor(direct_fd_);
  const int code = close_descriptor(fd_);
  if (code != 0 || direct_code != 0) throw IoError("close", path_, code != 0 ? code : direct_code);
  keep_ = true;
}

int TargetFile::close_descriptor(int& fd) {
  if (fd < 0) return 0;
  // Linux closes the descriptor even if it reports an interruption.
  const bool failed = ops_.close(std::exchange(fd, -1)) != 0 && errno != EINTR;
  return failed ? errno : 0;
}

}  // namespace ddp::ckpt
