// SPDX-License-Identifier: Apache-2.0
#include "base/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace ddp {
namespace {

[[noreturn]] void fail_writing(const std::string& path, const char* what) {
  const int error = errno;
  throw RuntimeError("cannot write " + path + ": " + what + ": " + std::strerror(error));
}

// mkostemp creates files that only their owner can read, but reports are for other users too.
mode_t usual_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)),
      temporary_(path_ + ".XXXXXX"),
      file_(::mkostemp(temporary_.data(), O_CLOEXEC)) {
  if (!file_) fail("creating a temporary file failed");
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(const char* what) const {
  fail_writing(path_, what);
}

void AtomicFile::write(std::string_view content) {
  if (!write_all(file_.get(), content)) fail("writing failed");
}

FileDescriptor AtomicFile::publish() {
  if (::fchmod(file_.get(), usual_mode()) != 0) fail("setting the file mode failed");
  if (::fsync(file_.get()) != 0) fail("flushing failed");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail("renaming failed");
  temporary_.clear();
  return std::move(file_);
}

void replace_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.publish();
}

void write_file(const std::string& path, std::string_view content) {
  struct stat existing {};
  if (::stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
    // /dev/stdout or a FIFO cannot be replaced by a file.
    const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!file) fail_writing(path, "opening failed");
    if (!write_all(file.get(), content)) fail_writing(path, "writing failed");
    return;
  }
  replace_file(path, content);
}

}  // namespace ddp
