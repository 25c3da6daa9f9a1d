// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/report/report_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/atomic_file.h"
#include "base/errors.h"

namespace ddp::train {
namespace {

constexpr std::size_t kBlock = 64 << 10;
constexpr std::size_t kMaxLine = 4096;

[[noreturn]] void fail_writing(const std::filesystem::path& file) {
  throw RuntimeError(fmt::format("cannot write {}: {}", file.string(), std::strerror(errno)));
}

FileDescriptor open_regular(const std::filesystem::path& file, std::uintmax_t* size) {
  FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat facts {};
  if (!fd || ::fstat(fd.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return {};
  *size = static_cast<std::uintmax_t>(facts.st_size);
  return fd;
}

// Calls `line` for each complete line, without its line break. Skips lines longer than kMaxLine,
// which no report contains.
void for_each_line(int fd, const std::function<void(std::string_view)>& line) {
  std::string rest;
  std::array<char, kBlock> block{};
  for (;;) {
    const ssize_t n = ::read(fd, block.data(), block.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    rest.append(block.data(), static_cast<std::size_t>(n));
    std::size_t begin = 0;
    for (std::size_t end = 0; (end = rest.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      if (end - begin <= kMaxLine) line(std::string_view(rest).substr(begin, end - begin));
    }
    rest.erase(0, begin);
    if (rest.size() > kBlock) rest.assign(kMaxLine + 1, ' ');  // longer than kMaxLine: skipped
  }
}

}  // namespace

std::string read_if_there(const std::filesystem::path& file, std::uintmax_t most_bytes) {
  std::uintmax_t size = 0;
  const FileDescriptor fd = open_regular(file, &size);
  if (!fd || size > most_bytes) return {};
  std::string text(size, '\0');
  std::size_t have = 0;
  while (have < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + have, text.size() - have);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return {};
    have += static_cast<std::size_t>(n);
  }
  return text;
}

LineFile::LineFile(const std::filesystem::path& file, std::string_view head,
                   const std::function<bool(std::string_view line)>& keep)
    : file_(file) {
  AtomicFile draft(file_);
  draft.write(head);
  std::uintmax_t size = 0;
  if (const FileDescriptor old = open_regular(file_, &size); old) {
    std::string kept;
    for_each_line(old.get(), [&](std::string_view line) {
      if (!keep(line)) return;
      kept.append(line).push_back('\n');
      if (kept.size() >= kBlock) draft.write(std::exchange(kept, {}));
    });
    draft.write(kept);
  }
  fd_ = draft.publish();
  size_ = ::lseek(fd_.get(), 0, SEEK_CUR);
}

// This process still has the contents of a file that was deleted, with its directory or alone.
void LineFile::restore() {
  AtomicFile draft(file_);
  std::array<char, kBlock> block{};
  for (std::int64_t at = 0; at < size_;) {
    const auto wanted = std::min<std::int64_t>(size_ - at, kBlock);
    const ssize_t n = ::pread(fd_.get(), block.data(), static_cast<std::size_t>(wanted), at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_writing(file_);
    draft.write({block.data(), static_cast<std::size_t>(n)});
    at += n;
  }
  fd_ = draft.publish();
}

void LineFile::append(std::string_view lines) {
  struct stat there {};
  if (::lstat(file_.c_str(), &there) != 0 && errno == ENOENT) restore();
  if (write_all(fd_.get(), lines)) {
    size_ += static_cast<std::int64_t>(lines.size());
    return;
  }
  const int error = errno;
  // Leaves no partial line, whatever the error was.
  if (::ftruncate(fd_.get(), size_) == 0) ::lseek(fd_.get(), size_, SEEK_SET);
  errno = error;
  fail_writing(file_);
}

}  // namespace ddp::train
