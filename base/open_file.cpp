// SPDX-License-Identifier: Apache-2.0
#include "base/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace ddp {

OpenFile::OpenFile(const std::filesystem::path& file) noexcept
    : fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}

OpenFile::~OpenFile() {
  if (fd_ >= 0) ::close(fd_);
}

bool OpenFile::is_regular() const noexcept {
  struct stat status {};
  return fd_ >= 0 && fstat(fd_, &status) == 0 && S_ISREG(status.st_mode);
}

bool OpenFile::is_roots_alone() const noexcept {
  struct stat status {};
  return fd_ >= 0 && fstat(fd_, &status) == 0 && status.st_uid == 0 &&
         (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::optional<std::size_t> OpenFile::read(char* into, std::size_t room) const noexcept {
  std::size_t filled = 0;
  while (fd_ >= 0 && filled < room) {
    const ssize_t n = ::read(fd_, into + filled, room - filled);
    if (n == 0) return filled;
    if (n > 0) filled += static_cast<std::size_t>(n);
    if (n < 0 && errno != EINTR) return std::nullopt;
  }
  return fd_ >= 0 ? std::optional(filled) : std::nullopt;
}

}  // namespace ddp
