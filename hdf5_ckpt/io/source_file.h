// SPDX-License-Identifier: Apache-2.0
// Reads a file of arrays in pieces; large pieces bypass the page cache. A checkpoint is read once,
// and allocating cache pages costs more than copying from them. Bypassing the cache also keeps
// other programs' data in it, and ensures that verified data comes from the disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/io/aligned_buffer.h"
#include "hdf5_ckpt/io/posix_read.h"

namespace ddp::ckpt {

// Several threads may read at the same time.
class SourceFile {
 public:
  // `around_cache` is the same file, opened with O_DIRECT; empty to read everything through the
  // page cache.
  explicit SourceFile(FileDescriptor fd, FileDescriptor around_cache = {});

  struct Piece {
    std::span<std::byte> bytes;  // the data; shorter than requested at the end of the file
    int code = 0;                // errno of the failed read, 0 on success
  };

  // Reads `size` bytes at `offset`, directly into `place` (large enough, or empty) if it is aligned
  // for O_DIRECT, else into `passage`, the calling thread's bounce buffer.
  Piece read(std::uint64_t offset, std::size_t size, std::span<std::byte> place,
             AlignedBuffer& passage);

 private:
  Piece read_around_cache(std::uint64_t offset, std::size_t size, std::span<std::byte> place,
                          AlignedBuffer& passage);

  FileDescriptor fd_;
  FileDescriptor around_cache_;
  std::atomic<bool> around_works_;
};

// Reopens the file of `fd` for reads that bypass the page cache; empty if its file system does not
// support that.
FileDescriptor open_around_cache(const FileDescriptor& fd);

}  // namespace ddp::ckpt
