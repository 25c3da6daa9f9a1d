// SPDX-License-Identifier: Apache-2.0
// The retry loop around pread, and the safe opening of files of unknown type.

#include "hdf5_ckpt/io/posix_read.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {

ReadResult read_fully(int fd, std::span<std::byte> bytes, std::uint64_t offset) noexcept {
  ReadResult result;
  while (result.bytes < bytes.size()) {
    const ssize_t n = ::pread(fd, bytes.data() + result.bytes, bytes.size() - result.bytes,
                              static_cast<off_t>(offset + result.bytes));
    if (n > 0) {
      result.bytes += static_cast<std::size_t>(n);
    } else if (n == 0) {
      return result;
    } else if (errno != EINTR) {
      result.code = errno;
      return result;
    }
  }
  return result;
}

OpenedFile open_regular_file(int directory, const std::string& name) {
  // Without O_NONBLOCK, opening a pipe without a writer would hang.
  FileDescriptor fd(
      ::openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    const int code = errno;
    if (code == ELOOP) throw DamagedError(fmt::format("'{}' is a symbolic link", name));
    throw_read_error(
        fmt::format("'{}' cannot be opened: {}", name, std::generic_category().message(code)),
        code);
  }
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) {
    const int code = errno;
    throw_read_error(
        fmt::format("'{}' cannot be inspected: {}", name, std::generic_category().message(code)),
        code);
  }
  if (!S_ISREG(status.st_mode)) throw DamagedError(fmt::format("'{}' is not a regular file", name));
  return {std::move(fd), static_cast<std::uint64_t>(status.st_size)};
}

OpenedFile open_regular_file(const std::filesystem::path& path) {
  const FileDescriptor directory(
      ::open(path.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) {
    const int code = errno;
    throw_read_error(fmt::format("'{}' cannot be opened: {}", path.string(),
                                 std::generic_category().message(code)),
                     code);
  }
  return open_regular_file(directory.get(), path.filename().string());
}

OpenedFile open_named_file(const std::filesystem::path& path) {
  return open_regular_file(AT_FDCWD, path.string());
}

std::string text_of(const OpenedFile& file, std::string_view name, std::size_t most) {
  if (file.size > most) throw DamagedError(fmt::format("'{}' is larger than {} bytes", name, most));
  std::string text(file.size, '\0');
  const ReadResult result = read_fully(file.fd.get(), std::as_writable_bytes(std::span(text)), 0);
  if (result.code != 0)
    throw_read_error(
        fmt::format("'{}' cannot be read: {}", name, std::generic_category().message(result.code)),
        result.code);
  text.resize(result.bytes);
  return text;
}

void throw_read_error(const std::string& text, int code) {
  switch (code) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case EISDIR:
    case ENXIO:  // a socket, or a special file without a device
      throw DamagedError(text);
    default:
      throw UnreadableError(text);
  }
}

}  // namespace ddp::ckpt
