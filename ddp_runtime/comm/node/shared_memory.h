// SPDX-License-Identifier: Apache-2.0
// A block of memory mapped by several processes of one machine.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

namespace ddp::comm {

class SharedMemory {
 public:
  // Creates a new block under `name` (a file name) in /dev/shm with all of its memory reserved.
  // Returns nullopt if there is no /dev/shm or not enough room in it: an access to memory that
  // could not be reserved would kill the process much later.
  static std::optional<SharedMemory> create(const std::string& name, std::size_t bytes);
  // Maps a block created by another process; returns nullopt if it does not exist (another machine,
  // or another container with its own /dev/shm) or has a different size.
  static std::optional<SharedMemory> open(const std::string& name, std::size_t bytes);
  // For a block whose memory several processes reserve, each a slice of it, which the system then
  // takes from near that process. One of them creates it before the others call this. Returns
  // nullopt as create() and open() do.
  struct Slice {
    std::size_t offset = 0;
    std::size_t bytes = 0;
  };
  static std::optional<SharedMemory> create_slice(const std::string& name, std::size_t bytes,
                                                  Slice slice);
  static std::optional<SharedMemory> open_slice(const std::string& name, std::size_t bytes,
                                                Slice slice);
  // Unlinks names with this prefix that the user's processes have left, because they were killed
  // before all had opened the block: those that are older than an hour.
  static void remove_old_names(const std::string& prefix) noexcept;
  // Unlinks the name; the memory lives on until the last process unmaps it.
  static void remove_name(const std::string& name) noexcept;

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  std::span<std::byte> span() const noexcept { return memory_; }

 private:
  explicit SharedMemory(std::span<std::byte> memory) : memory_(memory) {}
  static std::optional<SharedMemory> map(int fd, std::size_t bytes, int flags);
  static std::optional<SharedMemory> reserve(int fd, std::size_t bytes, Slice slice);

  std::span<std::byte> memory_;
};

}  // namespace ddp::comm
