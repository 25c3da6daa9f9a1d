// SPDX-License-Identifier: Apache-2.0
// A new file, written at its final size through FileOps.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "hdf5_ckpt/core/file_ops.h"

namespace ddp::ckpt {

class TargetFile {
 public:
  // Creates `path`, which must not exist. With `direct_io`, aligned pieces bypass the page cache
  // where the file system supports it. All members throw IoError.
  TargetFile(FileOps& ops, std::filesystem::path path, bool direct_io);
  TargetFile(const TargetFile&) = delete;
  TargetFile& operator=(const TargetFile&) = delete;
  // Removes the file unless close() has returned.
  ~TargetFile();

  // Extends the file to `size` zero bytes and reserves their space, so that a full disk is detected
  // here and not in the middle of the data.
  void reserve(std::uint64_t size);

  // Writes all of `bytes`; may be called from any thread. Uses direct I/O where address, offset and
  // length are multiples of kAlignment (aligned_buffer.h), and the page cache for the rest.
  void write(std::span<const std::byte> bytes, std::uint64_t offset);

  // True if copying bytes to aligned memory first makes their write direct.
  bool is_direct() const noexcept { return direct_works_; }

  void truncate(std::uint64_t size);
  void sync();
  void close();

 private:
  int close_descriptor(int& fd);

  FileOps& ops_;
  std::filesystem::path path_;
  int fd_ = -1;
  int direct_fd_ = -1;
  std::atomic<bool> direct_works_ = false;
  bool keep_ = false;
};

}  // namespace ddp::ckpt
