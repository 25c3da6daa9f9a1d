// SPDX-License-Identifier: Apache-2.0
// A file without a name whose parts are mapped into memory: room for values that a process reads
// and writes only now and then. It vanishes with the process, however that ends. The kernel keeps
// in memory what there is room for, and takes the room back when it is needed.
//
// The mapping makes such memory look like any other. Large parts are better read and written by
// the functions here: they cost no page faults, and an error of the disk is an exception, where the
// mapping would end the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>

#include "base/file_descriptor.h"

namespace ddp::optim {

class ScratchFile : public std::enable_shared_from_this<ScratchFile> {
 public:
  // Throws UsageError if the directory cannot have such a file, or if its files are in memory.
  static std::shared_ptr<ScratchFile> open_in(const std::filesystem::path& directory);

  // Zeros. Their room on the disk is reserved, and given back when the result is destroyed, which
  // keeps this object. Throws RuntimeError if there is not enough.
  std::shared_ptr<std::byte> allocate(std::size_t bytes);
  // What allocate() has returned and is not destroyed yet.
  std::int64_t bytes() const;

  // Whether this address is in memory from allocate().
  bool holds(const void* place) const;
  // Copy from and to such memory, from any thread. Throw RuntimeError after an error of the disk,
  // naming the directory.
  void read(const void* place, void* into, std::size_t bytes) const;
  void write(const void* from, void* place, std::size_t bytes) const;

 private:
  struct Region {
    std::size_t bytes;
    std::int64_t offset;  // in the file
  };

  ScratchFile(FileDescriptor file, std::filesystem::path directory);
  std::byte* map_next(std::size_t bytes);
  void release(std::byte* first);
  // Throws std::logic_error if [place, place + bytes) is not in one region.
  std::int64_t offset_of(const void* place, std::size_t bytes) const;

  FileDescriptor file_;
  std::filesystem::path directory_;
  mutable std::mutex mutex_;  // of all below
  std::map<const std::byte*, Region, std::less<>> regions_;
  std::int64_t end_ = 0;  // of the file
};

}  // namespace ddp::optim
