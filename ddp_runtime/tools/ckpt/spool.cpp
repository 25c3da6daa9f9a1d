// SPDX-License-Identifier: Apache-2.0
// The temporary file is written piece by piece and then mapped, so that it uses disk space and not
// memory.

#include "ddp_runtime/tools/ckpt/spool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/convert/external_hdf5.h"
#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kSpoolPiece = 4ULL << 20;

std::uint64_t bytes_of(const ExternalArray& array) {
  return byte_count(array.dtype, array.shape).value();
}

// The nearest parent directory that exists.
fs::path directory_near(const fs::path& path) {
  fs::path directory = fs::absolute(path);
  while (!fs::is_directory(directory) && directory.has_relative_path())
    directory = directory.parent_path();
  return directory;
}

// A file that disappears when its descriptor is closed.
FileDescriptor nameless_file(const fs::path& directory) {
  FileDescriptor fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd) return fd;
  std::string name = directory / ".ddp-ckpt-XXXXXX";
  fd = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd) throw IoError("create a file in", directory, errno);
  ::unlink(name.c_str());
  return fd;
}

void write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0)
      throw IoError("write", "a temporary file beside the output", wrote < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    offset += static_cast<std::uint64_t>(wrote);
  }
}

// Writes the elements of `array` in order.
void fill(int fd, std::span<const std::byte> file, const ExternalArray& array,
          std::uint64_t offset) {
  const std::uint64_t bytes = bytes_of(array);
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; at < bytes; at += piece.size()) {
    piece.resize(std::min(kSpoolPiece, bytes - at));  // elements are a power of two in size
    copy_elements(file, array, at / itemsize(array.dtype), piece);
    write_all(fd, piece, offset + at);
  }
}

}  // namespace

Spool::Spool(const ForeignFile& file, std::span<const ExternalArray> arrays, const fs::path& near) {
  std::uint64_t size = 0;
  for (const ExternalArray& array : arrays)
    if (!is_plain(array)) size += bytes_of(array);
  FileDescriptor fd;
  if (size != 0) {
    fd = nameless_file(directory_near(near));
    std::uint64_t offset = 0;
    std::vector<Decoding> encoded;
    for (const ExternalArray& array : arrays) {
      if (is_plain(array)) continue;
      if (array.encoded)
        encoded.push_back({&array, offset});
      else
        fill(fd.get(), file.bytes(array), array, offset);
      offset += bytes_of(array);
    }
    file.decode(encoded, fd.get());
    void* const memory = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (memory == MAP_FAILED) throw IoError("map", "a temporary file beside the output", errno);
    mapped_ = {static_cast<std::byte*>(memory), size};
  }
  std::span<const std::byte> rest = mapped_;
  for (const ExternalArray& array : arrays) {
    const std::uint64_t bytes = bytes_of(array);
    dense_.push_back(is_plain(array) ? file.bytes(array).subspan(array.offset, bytes)
                                     : rest.first(bytes));
    if (!is_plain(array)) rest = rest.subspan(bytes);
  }
}

Spool::~Spool() {
  if (!mapped_.empty()) ::munmap(mapped_.data(), mapped_.size());
}

}  // namespace ddp::ckpt::tool
