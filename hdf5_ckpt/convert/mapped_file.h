// SPDX-License-Identifier: Apache-2.0
// A file of another program, mapped into memory and read on access, and its format.
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

enum class FileKind : std::uint8_t { safetensors, torch_save, hdf5 };

// The extension identifies safetensors, the contents HDF5. Everything else can only be a torch.save
// file, whose parser reports the defects.
FileKind kind_of(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace ddp::ckpt
