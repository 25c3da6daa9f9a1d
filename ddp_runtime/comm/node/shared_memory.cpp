// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/node/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <utility>

#include "base/file_descriptor.h"

namespace ddp::comm {

std::optional<SharedMemory> SharedMemory::map(int fd, std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (memory == MAP_FAILED) return std::nullopt;
  return SharedMemory({static_cast<std::byte*>(memory), bytes});
}

std::optional<SharedMemory> SharedMemory::create(const std::string& name, std::size_t bytes) {
  const FileDescriptor fd(shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600));
  if (!fd) return std::nullopt;
  std::optional<SharedMemory> memory;
  if (posix_fallocate(fd.get(), 0, static_cast<off_t>(bytes)) == 0) memory = map(fd.get(), bytes);
  if (!memory) remove_name(name);
  return memory;
}

std::optional<SharedMemory> SharedMemory::open(const std::string& name, std::size_t bytes) {
  const FileDescriptor fd(shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  struct stat status {};
  if (!fd || fstat(fd.get(), &status) != 0 || status.st_size != static_cast<off_t>(bytes)) {
    return std::nullopt;
  }
  return map(fd.get(), bytes);
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
