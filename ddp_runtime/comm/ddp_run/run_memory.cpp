// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/ddp_run/run_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/deadline.h"
#include "base/errors.h"

namespace ddp::comm {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNodeMemory = "/dev/shm";
constexpr const char* kLockName = "in-use";
constexpr std::size_t kIdDigits = 32;
constexpr int kOpenAttempts = 100;
constexpr std::chrono::milliseconds kBetweenAttempts{10};

bool is_run_id(std::string_view text) {
  return text.size() == kIdDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

fs::path user_memory() {
  const char* base = std::getenv(kRunMemoryVariable);
  return fs::path(base == nullptr || *base == '\0' ? kNodeMemory : base) /
         fmt::format("slurm-ddp-memory-{}", geteuid());
}

// Whether it is a directory, not a link to one, that only this user can access.
bool is_private(const fs::path& directory) {
  struct stat status {};
  return lstat(directory.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == geteuid() && (status.st_mode & 077) == 0;
}

[[noreturn]] void throw_errno(const char* what, const fs::path& path) {
  throw RuntimeError(fmt::format("cannot {} {}: {}", what, path.string(), strerror(errno)));
}

// Another process may remove an empty directory meanwhile; the caller tries again.
void make_private_directory(const fs::path& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    if (errno == ENOENT && fs::exists(directory.parent_path().parent_path())) return;
    throw_errno("create", directory);
  }
  struct stat status {};
  if (lstat(directory.c_str(), &status) != 0 && errno == ENOENT) return;
  if (!is_private(directory)) {
    throw RuntimeError(fmt::format(
        "{} is not a directory that only this user can access; remove it", directory.string()));
  }
}

FileDescriptor open_lock(const fs::path& directory, int flags) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  return FileDescriptor(open((directory / kLockName).c_str(), kFlags | flags, 0600));
}

bool is_linked(const FileDescriptor& file) {
  struct stat status {};
  return fstat(file.get(), &status) == 0 && status.st_nlink > 0;
}

// Removes the directory if no other process has it locked.
bool remove_if_unused(const fs::path& directory) {
  const auto lock = open_lock(directory, 0);
  if (lock && flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return false;
  std::error_code ignored;
  fs::remove_all(directory, ignored);  // removes links, and does not follow them
  return true;
}

bool is_stale(const fs::path& directory) {
  struct stat status {};
  const auto lock = directory / kLockName;
  if (lstat(lock.c_str(), &status) != 0 && lstat(directory.c_str(), &status) != 0) return false;
  const auto age = std::chrono::system_clock::now().time_since_epoch() -
                   std::chrono::seconds(status.st_mtim.tv_sec);
  return age > kStaleAfter;
}

}  // namespace

std::optional<std::string> run_id() {
  const char* id = std::getenv(kRunIdVariable);
  if (id == nullptr || !is_run_id(id)) return std::nullopt;
  return id;
}

bool started_to_save() {
  const char* save = std::getenv(kRunSaveVariable);
  return run_id() && save != nullptr && std::string_view(save) == "1";
}

fs::path run_memory_path(const std::string& id) {
  return user_memory() / id;
}

RunMemory::RunMemory(const std::string& id) : path_(run_memory_path(id)) {
  if (!is_run_id(id)) throw RuntimeError(fmt::format("{} is not the id of a run", kRunIdVariable));
  // The directory may be removed between its creation and the lock.
  for (int attempt = 0; attempt < kOpenAttempts; ++attempt) {
    make_private_directory(path_.parent_path());
    make_private_directory(path_);
    lock_ = open_lock(path_, O_CREAT);
    if (!lock_ && errno != ENOENT) throw_errno("create", path_ / kLockName);
    if (lock_ && flock(lock_.get(), LOCK_SH) == 0 && is_linked(lock_)) {
      touch();
      return;
    }
    std::this_thread::sleep_for(kBetweenAttempts);
  }
  throw RuntimeError(fmt::format("cannot lock {}", (path_ / kLockName).string()));
}

void RunMemory::touch() const noexcept {
  futimens(lock_.get(), nullptr);
}

void touch_run_memory(const std::string& id) noexcept {
  try {
    if (!is_run_id(id) || !is_private(user_memory())) return;
    const auto directory = run_memory_path(id);
    const auto lock = open_lock(directory, 0);
    if (!lock) return;
    futimens(lock.get(), nullptr);
    const auto entries = std::distance(fs::directory_iterator(directory), {});
    if (entries == 1 && remove_if_unused(directory)) rmdir(user_memory().c_str());
  } catch (const std::exception&) {
    // no memory for a path: it becomes stale somewhat earlier
  }
}

void remove_run_memory(const std::string& id, std::chrono::milliseconds patience) noexcept {
  try {
    const auto all = user_memory();
    if (!is_run_id(id) || !is_private(all)) return;
    const auto deadline = Clock::now() + patience;
    while (!remove_if_unused(all / id) && Clock::now() < deadline) {
      std::this_thread::sleep_for(kBetweenAttempts);
    }
    rmdir(all.c_str());  // fails if other runs have directories
  } catch (const std::exception&) {
    // it becomes stale
  }
}

void remove_stale_run_memory() noexcept {
  try {
    const auto all = user_memory();
    if (!is_private(all)) return;
    std::error_code error;
    for (fs::directory_iterator entry(all, error), end; !error && entry != end;
         entry.increment(error)) {
      const auto& path = entry->path();
      if (is_run_id(path.filename().string()) && is_stale(path)) remove_if_unused(path);
    }
  } catch (const std::exception&) {
    // Only memory is lost.
  }
}

}  // namespace ddp::comm
