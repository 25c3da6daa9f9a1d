// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/optim/offload/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "base/errors.h"

namespace ddp::optim {
namespace {

std::string reason(int error) {
  return std::generic_category().message(error);
}

// File systems without unnamed files have the name for a moment only.
FileDescriptor open_unnamed(const std::filesystem::path& directory) {
  const int unnamed = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (unnamed >= 0) return FileDescriptor(unnamed);
  if (errno != EOPNOTSUPP && errno != EISDIR) return {};
  auto name = (directory / "optimizer-state.XXXXXX").string();
  FileDescriptor named(::mkostemp(name.data(), O_CLOEXEC));
  if (named) ::unlink(name.c_str());
  return named;
}

bool is_in_memory(int file) {
  struct statfs status = {};
  if (::fstatfs(file, &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

// A larger file would end the process with a signal.
void require_within_limit(std::int64_t bytes, const std::filesystem::path& directory) {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (static_cast<std::uint64_t>(bytes) <= limit.rlim_cur) return;
  throw RuntimeError(fmt::format(
      "the optimizer's state needs a file of {} MiB or more in {}, but the limit of a file's size "
      "is {} MiB (ulimit -f); raise it",
      (bytes >> 20) + 1, directory.string(), limit.rlim_cur >> 20));
}

// Signals interrupt it on some file systems.
int reserve(int file, std::int64_t offset, std::int64_t length) {
  int error = EINTR;
  while (error == EINTR) error = ::posix_fallocate(file, offset, length);
  return error;
}

std::string mapping_problem(int error) {
  if (error != ENOMEM) return reason(error);
  return reason(error) +
         ", or more mappings than vm.max_map_count, of which each tensor of the state needs one";
}

std::int64_t round_to_pages(std::size_t bytes) {
  const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  return (static_cast<std::int64_t>(bytes) + page - 1) / page * page;
}

}  // namespace

std::shared_ptr<ScratchFile> ScratchFile::open_in(const std::filesystem::path& directory) {
  auto file = open_unnamed(directory);
  if (!file) {
    throw UsageError(
        fmt::format("no file for the optimizer's state can be made in {} ({}); give a directory on "
                    "a local disk that exists and that you may write to",
                    directory.string(), reason(errno)));
  }
  if (is_in_memory(file.get())) {
    throw UsageError(
        fmt::format("{} keeps its files in memory, so the optimizer's state would save none there; "
                    "give a directory on a local disk",
                    directory.string()));
  }
  return std::shared_ptr<ScratchFile>(new ScratchFile(std::move(file), directory));
}

ScratchFile::ScratchFile(FileDescriptor file, std::filesystem::path directory)
    : file_(std::move(file)), directory_(std::move(directory)) {}

std::shared_ptr<std::byte> ScratchFile::allocate(std::size_t bytes) {
  auto* const first = map_next(bytes);
  // Without the lock, which release() takes if there is no memory for the count of owners.
  return {first, [self = shared_from_this()](std::byte* released) { self->release(released); }};
}

std::byte* ScratchFile::map_next(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto length = round_to_pages(bytes);
  require_within_limit(end_ + length, directory_);
  // A page of the mapping without room on the disk would end the process when it is written.
  if (const int error = reserve(file_.get(), end_, length); error != 0) {
    throw RuntimeError(fmt::format(
        "{} has no room for {} more MiB of the optimizer's state, after {} MiB ({}); free some, or "
        "offload to another directory",
        directory_.string(), (length >> 20) + 1, end_ >> 20, reason(error)));
  }
  auto* const memory = ::mmap(nullptr, static_cast<std::size_t>(length), PROT_READ | PROT_WRITE,
                              MAP_SHARED, file_.get(), end_);
  if (memory == MAP_FAILED) {
    throw RuntimeError(fmt::format("cannot map the file of the optimizer's state in {} ({})",
                                   directory_.string(), mapping_problem(errno)));
  }
  auto* const first = static_cast<std::byte*>(memory);
  regions_.emplace(first, Region{static_cast<std::size_t>(length), end_});
  end_ += length;
  return first;
}

void ScratchFile::release(std::byte* first) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(first);
  const auto [bytes, offset] = found->second;
  regions_.erase(found);
  ::munmap(first, bytes);
  // Where that is not possible, the room is given back with the file.
  static_cast<void>(::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset,
                                static_cast<off_t>(bytes)));
}

std::int64_t ScratchFile::bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t sum = 0;
  for (const auto& [first, region] : regions_) sum += static_cast<std::int64_t>(region.bytes);
  return sum;
}

bool ScratchFile::holds(const void* place) const {
  const std::lock_guard lock(mutex_);
  const auto* const byte = static_cast<const std::byte*>(place);
  const auto next = regions_.upper_bound(byte);
  if (next == regions_.begin()) return false;
  const auto& [first, region] = *std::prev(next);
  return byte < first + region.bytes;
}

std::int64_t ScratchFile::offset_of(const void* place, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto* const byte = static_cast<const std::byte*>(place);
  const auto next = regions_.upper_bound(byte);
  if (next != regions_.begin()) {
    const auto& [first, region] = *std::prev(next);
    if (byte + bytes <= first + region.bytes) return region.offset + (byte - first);
  }
  throw std::logic_error("memory that is not in the file of the optimizer's state");
}

void ScratchFile::read(const void* place, void* into, std::size_t bytes) const {
  auto offset = offset_of(place, bytes);
  auto* to = static_cast<std::byte*>(into);
  while (bytes > 0) {
    const auto count = ::pread(file_.get(), to, bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw RuntimeError(fmt::format("cannot read the optimizer's state from its file in {} ({})",
                                     directory_.string(),
                                     count < 0 ? reason(errno) : "the file has become shorter"));
    }
    to += count;
    offset += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

void ScratchFile::write(const void* from, void* place, std::size_t bytes) const {
  auto offset = offset_of(place, bytes);
  const auto* source = static_cast<const std::byte*>(from);
  while (bytes > 0) {
    const auto count = ::pwrite(file_.get(), source, bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      throw RuntimeError(fmt::format("cannot write the optimizer's state to its file in {} ({})",
                                     directory_.string(), reason(count < 0 ? errno : ENOSPC)));
    }
    source += count;
    offset += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

}  // namespace ddp::optim
