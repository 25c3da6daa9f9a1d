// A piece of memory that processes of one machine map together.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace ddp::comm {

class SharedMemory {
 public:
  // Makes a new piece under `name` (a file name) in /dev/shm with all of its memory reserved.
  // Nothing if there is no /dev/shm, or not enough room in it: an access to memory that could not
  // be reserved would kill the process much later.
  static std::optional<SharedMemory> create(const std::string& name, std::size_t bytes);
  // Maps what another process has created; nothing if it is not there (another machine, or another
  // container with a /dev/shm of its own) or has another size.
  static std::optional<SharedMemory> open(const std::string& name, std::size_t bytes);
  // Takes the name away; the memory lives on until the last process unmaps it.
  static void remove_name(const std::string& name) noexcept;

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::span<std::byte> span() const noexcept { return memory_; }

 private:
  explicit SharedMemory(std::span<std::byte> memory) : memory_(memory) {}
  static std::optional<SharedMemory> map(int fd, std::size_t bytes);

  std::span<std::byte> memory_;
};

}  // namespace ddp::comm
