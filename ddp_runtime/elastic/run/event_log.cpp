// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/run/event_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/errors.h"

namespace ddp::elastic {
namespace {

// A process that was killed, or a full disk, may have left a line without an end.
bool ends_within_a_line(int file, const std::string& path) {
  struct stat facts {};
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_size == 0) return false;
  const FileDescriptor reader(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  char last = '\n';
  return reader && pread(reader.get(), &last, 1, facts.st_size - 1) == 1 && last != '\n';
}

}  // namespace

EventLog::EventLog(const std::string& path, bool follow)
    : path_(path),
      file_(open(path.c_str(),
                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW),
                 0644)) {
  if (!file_) throw RuntimeError(fmt::format("{}: {}", path, strerror(errno)));
  if (ends_within_a_line(file_.get(), path)) {
    [[maybe_unused]] const bool written = write_all(file_.get(), "\n");
  }
}

// The lock ends with the process. Some file systems have none, and /dev/null is for all.
bool EventLog::claim() noexcept {
  struct stat facts {};
  if (!file_ || fstat(file_.get(), &facts) != 0 || !S_ISREG(facts.st_mode)) return true;
  return flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

std::string EventLog::write(const nlohmann::json& line) {
  if (!file_) return {};
  const auto text = line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (write_all(file_.get(), text)) return {};
  auto problem = fmt::format("{}: {}; no further events are written", path_, strerror(errno));
  file_.close();
  return problem;
}

}  // namespace ddp::elastic
