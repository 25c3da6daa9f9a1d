#pragma once
// A file of arrays, read in pieces: large ones around the page cache. A checkpoint is read once,
// and pages that are new to the kernel cost more than the copy out of them; what other programs
// keep in the cache stays there, and what is verified comes from the disk.

#include <atomic>
#include <cstdint>
#include <span>

#include "base/file_descriptor.h"
#include "hdf5_ckpt/detail/aligned_buffer.h"
#include "hdf5_ckpt/detail/posix_read.h"

namespace ddp::ckpt {

// May be read by several threads at once.
class SourceFile {
 public:
  // `around_cache`: the same file, opened with O_DIRECT; none if all is to be read through the
  // cache.
  explicit SourceFile(FileDescriptor fd, FileDescriptor around_cache = {});

  struct Piece {
    std::span<std::byte> bytes;  // where they lie; fewer than asked for at the end of the file
    int code = 0;                // errno of the read that failed, 0 if none did
  };

  // Reads `size` bytes at `offset`. They lie in `place`, which has room for them or is empty, if
  // the disk's own way leads there, and otherwise in `passage`, which is the calling thread's.
  Piece read(std::uint64_t offset, std::size_t size, std::span<std::byte> place,
             AlignedBuffer& passage);

 private:
  Piece read_around_cache(std::uint64_t offset, std::size_t size, std::span<std::byte> place,
                          AlignedBuffer& passage);

  FileDescriptor fd_;
  FileDescriptor around_cache_;
  std::atomic<bool> around_works_;
};

// The file of `fd` for reading around the page cache; none where its file system cannot.
FileDescriptor open_around_cache(const FileDescriptor& fd);

}  // namespace ddp::ckpt
