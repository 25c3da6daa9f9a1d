#include "ddp_runtime/comm/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/errors.h"
#include "base/file_descriptor.h"

namespace ddp::comm {
namespace {

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw RuntimeError(fmt::format("cannot write {}: {}: {}", path, what, std::strerror(errno)));
}

void write_all(int file, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(file, content.data(), content.size());
    if (n < 0 && errno != EINTR) fail(path, "writing failed");
    if (n > 0) content.remove_prefix(static_cast<std::size_t>(n));
  }
}

// mkstemp makes files that only their owner can read; reports are for others too.
mode_t usual_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

void write_and_flush(const std::string& temporary, int file, std::string_view content,
                     const std::string& path) {
  try {
    write_all(file, content, path);
    if (::fchmod(file, usual_mode()) != 0) fail(path, "setting its mode failed");
    if (::fsync(file) != 0) fail(path, "flushing failed");
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "renaming failed");
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace

void write_file(const std::string& path, std::string_view content) {
  struct stat existing {};
  if (::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
    // /dev/stdout, a FIFO: nothing that could be replaced.
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file) fail(path, "opening failed");
    return write_all(file.get(), content, path);
  }
  replace_file(path, content);
}

void replace_file(const std::string& path, std::string_view content) {
  std::string temporary = path + ".XXXXXX";
  const FileDescriptor file(mkostemp(temporary.data(), O_CLOEXEC));
  if (!file) fail(path, "creating a temporary file failed");
  write_and_flush(temporary, file.get(), content, path);
}

}  // namespace ddp::comm
