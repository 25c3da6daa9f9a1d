#pragma once
// A file of arrays, read in pieces: large ones around the page cache. A checkpoint is read once,
// and pages that are new to the kernel cost more than the copy out of them; what other programs
// keep in the cache stays there, and what is verified comes from the disk.

#include <atomic>
#include <cstdint>
#include <span>

#include "hdf5_ckpt/detail/aligned_buffer.h"
#include "hdf5_ckpt/detail/posix_read.h"
#include "hdf5_ckpt/detail/unique_fd.h"

namespace ddp::ckpt {

// May be read by several threads at once.
class SourceFile {
 public:
  // `direct_io`: where the file system has it.
  SourceFile(UniqueFd fd, bool direct_io);

  // Reads bytes.size() bytes at `offset`, as read_fully() does. `passage`: of the calling thread,
  // for what cannot be read to its place at once.
  ReadResult read(std::span<std::byte> bytes, std::uint64_t offset, AlignedBuffer& passage);

 private:
  ReadResult read_around_cache(std::span<std::byte> bytes, std::uint64_t offset,
                               AlignedBuffer& passage);

  UniqueFd fd_;
  UniqueFd direct_fd_;
  std::atomic<bool> direct_works_;
};

}  // namespace ddp::ckpt
