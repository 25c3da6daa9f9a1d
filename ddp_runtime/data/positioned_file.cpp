// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/positioned_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace ddp::data {

PositionedFile::PositionedFile(std::filesystem::path path) : path_(std::move(path)) {
  // Without O_NONBLOCK, opening a named pipe would block.
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    throw UsageError(fmt::format("cannot open {}: {}", path_.string(), std::strerror(errno)));
  }
  struct stat status {};
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    throw UsageError(fmt::format("{} is not a file; give the data file itself", path_.string()));
  }
  size_ = status.st_size;
}

PositionedFile::~PositionedFile() {
  close(descriptor_);
}

void PositionedFile::read(std::span<unsigned char> bytes, std::int64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t n = pread(descriptor_, bytes.data(), bytes.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw RuntimeError(fmt::format("cannot read {} at byte {}: {}", path_.string(), offset,
                                     std::strerror(errno)));
    }
    if (n == 0) {
      throw RuntimeError(fmt::format(
          "{} ends at byte {}, but had {} bytes when it was opened; do not change data files while "
          "they are in use",
          path_.string(), offset, size_));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

}  // namespace ddp::data
