// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/node/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file_descriptor.h"

namespace ddp::comm {
namespace {

FileDescriptor create_block(const std::string& name) {
  return FileDescriptor(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
}

// Invalid if there is no such block, or it has another size.
FileDescriptor open_block(const std::string& name, std::size_t bytes) {
  FileDescriptor fd(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  struct stat status {};
  const bool fits =
      fd && fstat(fd.get(), &status) == 0 && status.st_size == static_cast<off_t>(bytes);
  return fits ? std::move(fd) : FileDescriptor();
}

}  // namespace

std::optional<SharedMemory> SharedMemory::map(int fd, std::size_t bytes, int flags) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0);
  if (memory == MAP_FAILED) return std::nullopt;
  return SharedMemory({static_cast<std::byte*>(memory), bytes});
}

std::optional<SharedMemory> SharedMemory::create(const std::string& name, std::size_t bytes) {
  const auto fd = create_block(name);
  if (!fd) return std::nullopt;
  std::optional<SharedMemory> memory;
  if (posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) == 0) {
    memory = map(fd.get(), bytes, MAP_POPULATE);
  }
  if (!memory) remove_name(name);
  return memory;
}

std::optional<SharedMemory> SharedMemory::open(const std::string& name, std::size_t bytes) {
  const auto fd = open_block(name, bytes);
  if (!fd) return std::nullopt;
  return map(fd.get(), bytes, MAP_POPULATE);
}

std::optional<SharedMemory> SharedMemory::create_slice(const std::string& name, std::size_t bytes,
                                                       Slice slice) {
  const auto fd = create_block(name);
  if (!fd) return std::nullopt;
  std::optional<SharedMemory> memory;
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0) memory = reserve(fd.get(), bytes, slice);
  if (!memory) remove_name(name);
  return memory;
}

std::optional<SharedMemory> SharedMemory::open_slice(const std::string& name, std::size_t bytes,
                                                     Slice slice) {
  const auto fd = open_block(name, bytes);
  if (!fd) return std::nullopt;
  return reserve(fd.get(), bytes, slice);
}

// Without MAP_POPULATE, which would take the memory of the other slices.
std::optional<SharedMemory> SharedMemory::reserve(int fd, std::size_t bytes, Slice slice) {
  const auto offset = static_cast<off_t>(slice.offset);
  const auto length = static_cast<off_t>(slice.bytes);
  if (length > 0 && posix_fallocate(fd, offset, length) != 0) return std::nullopt;
  return map(fd, bytes, 0);
}

void SharedMemory::remove_old_names(const std::string& prefix) noexcept {
  namespace fs = std::filesystem;
  const auto an_hour_ago = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code error;
  for (fs::directory_iterator entry("/dev/shm", error), end; entry != end; entry.increment(error)) {
    if (error) return;
    const auto name = entry->path().filename().string();
    struct stat status {};
    if (!name.starts_with(prefix) || lstat(entry->path().c_str(), &status) != 0) continue;
    const auto written = fs::last_write_time(entry->path(), error);
    if (error || status.st_uid != geteuid() || written > an_hour_ago) continue;
    remove_name("/" + name);
  }
}

void SharedMemory::remove_name(const std::string& name) noexcept {
  shm_unlink(name.c_str());
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : memory_(std::exchange(other.memory_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(memory_, other.memory_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

}  // namespace ddp::comm
