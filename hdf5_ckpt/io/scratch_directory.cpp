// SPDX-License-Identifier: Apache-2.0
// Creates scratch directories, and removes those that killed processes left behind.

#include "hdf5_ckpt/io/scratch_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <system_error>
#include <vector>

#include "hdf5_ckpt/core/error.h"

namespace ddp::ckpt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kScratchFile = "skeleton.h5";
constexpr std::string_view kScratchPrefix = "ddp-ckpt-";
constexpr std::int64_t kStaleSeconds = 3600;

// A scratch directory exists for less than a millisecond, so one that is an hour old belongs to a
// process that was killed in that millisecond.
void remove_stale_scratch(const fs::path& place) {
  std::error_code error;
  for (fs::directory_iterator entry(place, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat status = {};
    if (!entry->path().filename().string().starts_with(kScratchPrefix) ||
        ::lstat(entry->path().c_str(), &status) != 0 || status.st_uid != ::geteuid() ||
        !S_ISDIR(status.st_mode) || status.st_mtime > std::time(nullptr) - kStaleSeconds)
      continue;
    ::unlink((entry->path() / kScratchFile).c_str());
    ::rmdir(entry->path().c_str());
  }
}

std::vector<fs::path> places(const fs::path& preferred) {
  if (!preferred.empty()) return {preferred};
  std::error_code ignored;
  std::vector<fs::path> result = {"/dev/shm"};
  if (const fs::path tmp = fs::temp_directory_path(ignored); !tmp.empty()) result.push_back(tmp);
  return result;
}

}  // namespace

ScratchDirectory::ScratchDirectory(const fs::path& preferred, std::uint64_t bytes) {
  std::string reasons;
  for (const fs::path& place : places(preferred)) {
    const std::string reason = make_in(place, bytes);
    if (reason.empty()) return;
    reasons += fmt::format("; {}: {}", place.string(), reason);
  }
  throw Error(fmt::format(
      "no space for the {} bytes of metadata of a checkpoint file under construction{}; set "
      "scratch_dir or TMPDIR to another directory",
      bytes, reasons));
}

ScratchDirectory::~ScratchDirectory() {
  ::unlink(file().c_str());
  ::rmdir(path_.c_str());
}

fs::path ScratchDirectory::file() const {
  return path_ / kScratchFile;
}

// Returns an empty string, or the reason for a failure. libhdf5 1.10 can crash the process after a
// failed write, so this function first checks for twice the needed space.
std::string ScratchDirectory::make_in(const fs::path& place, std::uint64_t bytes) {
  struct statvfs vfs = {};
  if (::statvfs(place.c_str(), &vfs) != 0) return std::generic_category().message(errno);
  if (vfs.f_blocks != 0 && vfs.f_bavail < 2 * bytes / vfs.f_frsize) return "too little free space";
  remove_stale_scratch(place);
  std::string name = place / fmt::format("{}XXXXXX", kScratchPrefix);
  if (::mkdtemp(name.data()) == nullptr) return std::generic_category().message(errno);
  path_ = name;
  return "";
}

}  // namespace ddp::ckpt
