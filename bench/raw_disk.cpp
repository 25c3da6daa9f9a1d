// SPDX-License-Identifier: Apache-2.0
#include "bench/raw_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/file_descriptor.h"

namespace ddp::bench {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = 4 << 20;

[[noreturn]] void fail(const char* what, const fs::path& file) {
  throw RuntimeError(fmt::format("cannot {} {}: {}", what, file.string(), std::strerror(errno)));
}

FileDescriptor open_file(const fs::path& file, int flags) {
  int fd = ::open(file.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0 && errno == EINVAL) fd = ::open(file.c_str(), (flags & ~O_DIRECT) | O_CLOEXEC, 0644);
  if (fd < 0) fail("open", file);
  return FileDescriptor(fd);
}

// Calls move(offset, length) for each block of `size` bytes; a return value of false means failure.
void in_blocks(std::size_t size, unsigned threads,
               const std::function<bool(std::size_t, std::size_t)>& move, const fs::path& file) {
  std::atomic<std::size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto run = [&] {
    for (std::size_t at = 0; (at = next.fetch_add(kBlock)) < size && !failed;) {
      if (!move(at, std::min(kBlock, size - at))) failed = true;
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (unsigned i = 1; i < threads; ++i) helpers.emplace_back(run);
    run();
  }
  if (failed) throw RuntimeError(fmt::format("cannot read or write {}", file.string()));
}

void sync_path(const fs::path& path, int flags) {
  const auto fd = open_file(path, flags);
  if (::fsync(fd.get()) != 0) fail("sync", path);
}

}  // namespace

void write_raw(const fs::path& file, std::span<const std::byte> bytes, unsigned threads,
               bool direct) {
  {
    const auto fd = open_file(file, O_CREAT | O_EXCL | O_WRONLY | (direct ? O_DIRECT : 0));
    if (::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes.size())) != 0 && errno != EOPNOTSUPP) {
      fail("reserve", file);
    }
    in_blocks(
        bytes.size(), threads,
        [&](std::size_t at, std::size_t size) {
          return ::pwrite(fd.get(), bytes.data() + at, size, static_cast<off_t>(at)) ==
                 static_cast<ssize_t>(size);
        },
        file);
    if (::fsync(fd.get()) != 0) fail("sync", file);
  }
  sync_path(file.parent_path(), O_RDONLY | O_DIRECTORY);
}

void read_raw(const fs::path& file, std::span<std::byte> bytes, unsigned threads) {
  const auto fd = open_file(file, O_RDONLY | O_DIRECT);
  in_blocks(
      bytes.size(), threads,
      [&](std::size_t at, std::size_t size) {
        return ::pread(fd.get(), bytes.data() + at, size, static_cast<off_t>(at)) ==
               static_cast<ssize_t>(size);
      },
      file);
}

void drop_pages(const fs::path& file) {
  const auto fd = open_file(file, O_RDONLY);
  ::fsync(fd.get());
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace ddp::bench
