// SPDX-License-Identifier: Apache-2.0
// A file of another program, mapped into memory and read on access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace ddp::ckpt {

class MappedFile {
 public:
  // The user's path may be a symbolic link, because some model caches consist of links. Throws
  // DamagedError for an empty file and for one that is not a regular file, UnreadableError or
  // IoError if it cannot be read.
  explicit MappedFile(const std::filesystem::path& named);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  void unmap() noexcept;

  std::span<const std::byte> bytes_;
};

}  // namespace ddp::ckpt
