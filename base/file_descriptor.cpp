// SPDX-License-Identifier: Apache-2.0
#include "base/file_descriptor.h"

#include <unistd.h>

#include <cerrno>

namespace ddp {

void FileDescriptor::close() noexcept {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

bool write_all(int file, std::string_view content) noexcept {
  while (!content.empty()) {
    const ssize_t n = ::write(file, content.data(), content.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) content.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace ddp
